"""A run says why a process of it is gone."""

from __future__ import annotations

from torture.driver.fate import fate_of, kills_for_memory


def test_an_exit_code_a_signal_and_the_report_of_a_crash(tmp_path):
    assert fate_of(None, tmp_path, 0) == "runs"
    before = kills_for_memory()
    assert fate_of(56, tmp_path, before).startswith("ended with the exit code 56")
    assert fate_of(-9, tmp_path, before).startswith("was ended by SIGKILL")
    assert "killed 2 processes for want of memory" in fate_of(-9, tmp_path, before - 2)
    (tmp_path / "hs_err_pid17.log").write_text("# SIGSEGV (0xb) at pc=0x1\n")
    assert "SIGSEGV (0xb)" in fate_of(-6, tmp_path, before)

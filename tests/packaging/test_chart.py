"""The Helm chart of the server. It is rendered where helm is: `make test-deploy` brings it, and Kubernetes' schemas."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import configuration
from certificates import Authority
from engine_support import ServerProcess
from fluss_tiering.server.settings.server_settings import load_settings, unknown_variables
from fluss_tiering.version import __version__
from needs import needs
from waiting import wait_until

ROOT = Path(__file__).parents[2]
CHART = ROOT / "docs" / "deploy" / "fluss-tiering"
CRDS = Path(__file__).with_name("crds")
VARIANTS = sorted(CHART.glob("ci/*-values.yaml"))
KUBERNETES = ("1.25", "1.37")
"""The oldest version that the chart is for, and the newest whose schema there is."""
SETTINGS = configuration.page().partition("\n## Clients\n")[0]
OF_THE_CHART = {"host", "port", "metrics-enabled", "metrics-port", "advertised-address", "data.dir"}
"""Settings that the chart makes itself, beside files."""
SECRET = {"fluss-password", "store-url"}
SECRETS = {
    "FLUSS_TIERING_FLUSS_PASSWORD": "x",
    "FLUSS_TIERING_LAKE_CATALOG": '{"type": "rest"}',
    "FLUSS_TIERING_STORE_URL": "postgresql://tiering:x@db/tiering",
}
KINDS = {
    "Boolean": {"type": "boolean"},
    "Duration": {"$ref": "#/$defs/duration"},
    "Integer": {"type": "integer"},
    "JSON object": {"type": "object"},
    "MemorySize": {"$ref": "#/$defs/size"},
    "String": {"type": "string"},
}

Render = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
@needs("system")
def render() -> Render:
    """Renders the chart with a file of values and with options, for a version of Kubernetes."""
    if shutil.which("helm") is None:
        pytest.skip("this machine has no helm: `make test-deploy` brings it")

    def template(values: Path, *options: str, kubernetes: str = KUBERNETES[-1]) -> subprocess.CompletedProcess[str]:
        command = ["helm", "template", "fluss-tiering", str(CHART), "--namespace", "shop", "--values", str(values)]
        command += ["--kube-version", kubernetes, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return template


def schema() -> dict[str, Any]:
    return json.loads((CHART / "values.schema.json").read_text())


def objects(rendered: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert rendered.returncode == 0, rendered.stderr
    return {each["kind"]: each for each in yaml.safe_load_all(rendered.stdout)}


def environment_of(found: dict[str, Any], number: int) -> dict[str, str]:
    """The environment of the container of a pod."""
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    name = f"fluss-tiering-{number}"
    own = {each["name"]: each.get("value", name).replace("$(POD_NAME)", name) for each in container["env"]}
    return {**found["ConfigMap"]["data"], **own}


def test_the_schema_has_each_setting_with_its_type():
    rows = re.findall(r"^\| \**`([\w.-]+)`\** \| ([^|]+) \|", SETTINGS, re.MULTILINE)
    kinds = {key: KINDS.get(kind) or {"enum": re.findall("`(.+?)`", kind)} for key, kind in rows}
    made = {key for key in kinds if key.endswith("-file")} | OF_THE_CHART
    wanted = {key: kind for key, kind in kinds.items() if key not in made | SECRET}
    told = schema()["properties"]
    assert told["settings"]["properties"] == wanted
    assert told["secretSettings"]["properties"].keys() == SECRET | {"lake-catalog"}


@pytest.mark.slow
def test_the_values_of_each_variant_fit_the_schema():
    import jsonschema  # noqa: PLC0415 - it takes a second, which every process would wait for

    for file in [CHART / "values.yaml", *VARIANTS]:
        jsonschema.validate(yaml.safe_load(file.read_text()), schema())


def test_the_chart_is_for_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda path: path.stem)
def test_kubernetes_takes_what_is_rendered(render, variant):
    import jsonschema  # noqa: PLC0415

    lint = ["helm", "lint", "--strict", str(CHART), "--values", str(variant)]
    subprocess.run(lint, check=True, stdout=subprocess.DEVNULL)
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="`make test-deploy` brings the schemas")
    for version in KUBERNETES:
        for kind, each in objects(render(variant, kubernetes=version)).items():
            if (CRDS / f"{kind}.json").exists():
                jsonschema.validate(each, json.loads((CRDS / f"{kind}.json").read_text()))
            else:
                kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda path: path.stem)
def test_a_server_starts_with_what_is_rendered(render, variant, monkeypatch, tmp_path):
    found = objects(render(variant))
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment = environment_of(found, 0)
    secrets = {each["name"]: each["projected"]["sources"] for each in pod["volumes"] if "projected" in each}
    paths = {each["items"][0]["path"] for source in secrets.get("settings", ()) for each in source.values()}
    for path in paths:
        (tmp_path / path).write_text(SECRETS[path])
    for name, value in environment.items():
        monkeypatch.setenv(name, str(tmp_path) if name == "FLUSS_TIERING_SECRETS_DIR" else value)
    settings = load_settings()
    assert not unknown_variables(os.environ)
    assert {f"FLUSS_TIERING_{name.upper()}" for name in settings.model_fields_set} >= paths
    assert settings.host == "0.0.0.0"
    assert settings.advertised_address == "fluss-tiering-0.fluss-tiering.shop.svc.cluster.local:9133"
    mounts = [each["mountPath"] for each in container["volumeMounts"]]
    files = [value for name, value in environment.items() if name.endswith(("_FILE", "_DIR", "_CA"))]
    assert all(any(f"{file}/".startswith(f"{mount}/") for mount in mounts) for file in files)
    claims = [each["metadata"] for each in found["StatefulSet"]["spec"].get("volumeClaimTemplates", [])]
    volumes = {each["name"] for each in [*pod["volumes"], *claims]}
    assert volumes == {each["name"] for each in container["volumeMounts"]}


def test_two_servers_run_with_what_is_rendered(render, postgres_url, tmp_path):
    (variant,) = [each for each in VARIANTS if each.stem.startswith("shared-folder")]
    found = objects(render(variant))
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    volumes = {"/var/lib/fluss-tiering": tmp_path / "data", "/etc/fluss-tiering": tmp_path / "files"}
    authority = Authority(tmp_path / "ca")
    pair = authority.pair("server", "server", host="*.fluss-tiering.shop.svc.cluster.local")
    for name, content in {
        "tls/tls.crt": pair.cert.read_text(),
        "tls/tls.key": pair.key.read_text(),
        "tls/ca.crt": authority.cert.read_text(),
        "access/access.toml": '[[grants]]\nidentity = "certificate/CN=airflow"\nrole = "tierer"\n',
        "settings/FLUSS_TIERING_STORE_URL": postgres_url,
    }.items():
        (tmp_path / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / name).write_text(content)
    text = json.dumps([environment_of(found, number) for number in (0, 1)])
    for path, here in volumes.items():
        text = text.replace(path, str(here))
    environments = json.loads(text)
    servers = [
        ServerProcess(tmp_path / each["POD_NAME"], data_dir=tmp_path / "data" / "data", **each).start()
        for each in environments
    ]

    def healthy(number: int, *options: str) -> bool:
        program, *command = container["readinessProbe"]["exec"]["command"]
        environment = {**os.environ, **environments[number], "FLUSS_TIERING_SERVER": servers[number].target}
        probe = [Path(sys.executable).with_name(program), *command, *options]
        return subprocess.run(probe, env=environment, capture_output=True, check=False).returncode == 0

    try:
        wait_until(lambda: healthy(0) and healthy(1))
        active = wait_until(lambda: [number for number in (0, 1) if healthy(number, "--active")])
        assert len(active) == 1
        assert servers[active[0]].stop() == 0
        wait_until(lambda: healthy(1 - active[0], "--active"))
    finally:
        for server in servers:
            server.stop()


def test_wrong_values_are_refused_in_a_line(render):
    (embedded,) = [each for each in VARIANTS if each.stem.startswith("embedded")]
    wrong = {
        "settings.heartbeat-timeot=1min": "additional properties 'heartbeat-timeot' not allowed",
        "settings.heartbeat-timeout=1": "at '/settings/heartbeat-timeout'",
        "settings.store-url=x": "additional properties 'store-url' not allowed",
        "settings.port=1": "additional properties 'port' not allowed",
        "settings.allow-insecure=false": "tls.secretName is missing",
        "replicas=3": "at '/replicas'",
        "replicas=2": "secretSettings.store-url is missing",
        "replicas=2,secretSettings.store-url.name=db,secretSettings.store-url.key=url": "existingClaim is missing",
        "settings.allow-insecure=false,tls.secretName=a": "tokens.secretName and access.secretName are missing",
        "tls.clientCertificates=true": "expected it too",
    }
    for values, words in wrong.items():
        refused = render(embedded, "--set", values)
        assert refused.returncode == 1, values
        assert words in refused.stderr, refused.stderr

"""The page within Airflow, in a real browser, with a server that really tiers."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from airflow_names import AIRFLOW
from page_tables import ORIGIN

from airflow_provider_fluss.links import tables_href

# The document within Airflow's frame, and how a person finds things in it.
FRAME = "document.querySelector('iframe').contentDocument"
ROWS = "[...{document}.querySelectorAll('tbody th')].map((each) => each.innerText)"

CONTRAST = Path(__file__).with_name("contrast.js").read_text()


def rows_are(names: list[str], document: str = "document") -> str:
    return (
        f"JSON.stringify({ROWS.format(document=document)}) === {json.dumps(json.dumps(names, separators=(',', ':')))}"
    )


def address(airflow, path: str) -> str:
    return f"{airflow.url}/lake-tiering/{path}"


def test_the_page_is_in_airflows_navigation_and_its_links_work_there(browser, airflow, tables, name):
    path = tables.create(name("in_frame"), rows=3)
    tables.tier(path, 3)
    browser.open(f"{airflow.url}/")
    browser.wait_for("document.querySelector('a[href$=\"/plugin/lake-tiering\"]')")
    browser.evaluate("document.querySelector('a[href$=\"/plugin/lake-tiering\"]').click()")
    browser.wait_for("document.querySelector('iframe')?.contentDocument?.querySelector('h1')")
    assert browser.evaluate(f"{FRAME}.querySelector('h1').innerText") == "Lake tiering"
    # Within the frame, there is no second way back to Airflow.
    assert browser.evaluate(f"getComputedStyle({FRAME}.querySelector('.to-airflow')).display") == "none"
    browser.evaluate(f"{FRAME}.defaultView.location = {json.dumps(address(airflow, f'./?q={path}'))}")
    browser.wait_for(rows_are([str(path)], FRAME))
    browser.evaluate(f"{FRAME}.querySelector('tbody a').click()")
    browser.wait_for(f"{FRAME}.querySelector('rect')")
    assert browser.evaluate(f"{FRAME}.querySelector('h2').innerText") == str(path)


def test_an_address_within_airflow_leads_to_a_table(browser, airflow, tables, name):
    path = tables.create(name("deep"))
    within = f"{airflow.path.lstrip('/')}/lake-tiering/table?table={quote(str(path))}"
    browser.open(f"{airflow.url}/plugin/lake-tiering/{within}")
    if AIRFLOW < (3, 3):  # An older Airflow shows the first page, whatever follows in the address.
        browser.wait_for("document.querySelector('iframe')?.contentDocument?.querySelector('h1')")
        assert browser.evaluate(f"{FRAME}.location.pathname") == f"{airflow.path}/lake-tiering/"
        browser.open(f"{airflow.url}/{tables_href([str(path)], 'fluss_default')}")
        assert browser.evaluate("document.querySelector('h2').innerText") == str(path)
    else:
        browser.wait_for("document.querySelector('iframe')?.contentDocument?.querySelector('h2')")
        assert browser.evaluate(f"{FRAME}.querySelector('h2').innerText") == str(path)


def test_tables_are_found_while_one_types(browser, airflow, tables, name):
    created = [str(tables.create(name(each))) for each in ("apples", "apricots", "pears")]
    browser.open(address(airflow, f"./?q={name('')}"))
    browser.wait_for(rows_are(created))
    browser.evaluate("document.getElementById('q').focus(); document.getElementById('q').select()")
    browser.type(name("ap"))
    browser.wait_for(rows_are(created[:2]))
    # What was typed stays in the field and in the address, and so does the focus.
    assert browser.evaluate("document.activeElement.id") == "q"
    assert browser.evaluate("new URL(location).searchParams.get('q')") == name("ap")


def test_headings_sort_and_say_so(browser, airflow, tables, name):
    browser.resize(1440, 900)
    for epochs, table in enumerate(("b", "a", "c")):
        path = tables.create(name(table))
        for _ in range(epochs):
            tables.tier(path)
    browser.open(address(airflow, f"./?q={name('')}"))
    browser.wait_for(rows_are([name("a"), name("b"), name("c")]))
    assert not browser.evaluate("document.querySelector('th:not([aria-sort=none])[aria-sort]')")
    browser.follow("document.getElementById('by-table').click()")
    sorted_by = "document.querySelector('th:not([aria-sort=none])[aria-sort]')"
    assert browser.evaluate(f"{sorted_by}.innerText + ' ' + {sorted_by}.ariaSort") == "Table ascending"
    browser.follow("document.getElementById('by-epoch').click()")
    assert browser.evaluate(ROWS.format(document="document")) == [name("b"), name("a"), name("c")]
    browser.follow("document.getElementById('by-epoch').click()")
    assert browser.evaluate(ROWS.format(document="document")) == [name("c"), name("a"), name("b")]
    assert browser.evaluate(f"{sorted_by}.innerText + ' ' + {sorted_by}.ariaSort") == "Epoch descending"


def test_a_filter_leaves_the_tables_of_a_status(browser, airflow, tables, name):
    tables.park(tables.create(name("parked")))
    tables.create(name("scheduled"))
    browser.open(address(airflow, f"./?q={name('')}"))
    browser.wait_for(rows_are([name("parked"), name("scheduled")]))
    browser.follow("document.getElementById('state-parked').click()")
    assert browser.evaluate(ROWS.format(document="document")) == [name("parked")]
    assert browser.evaluate("document.querySelector('.states [aria-current]').id") == "state-parked"


def test_an_error_is_read_with_the_keyboard_and_stays_open_while_the_page_refreshes(browser, airflow, tables, name):
    path = tables.create(name("broken"))
    tables.fail(path, "The disk is full.\nWhat was tried: everything.")
    browser.open(address(airflow, f"./?q={path}"))
    browser.wait_for("document.querySelector('details.error summary')")
    assert not browser.evaluate("document.querySelector('details.error').open")
    browser.evaluate("document.querySelector('details.error summary').focus()")
    browser.press("Enter", 13)
    browser.wait_for("document.querySelector('details.error').open")
    assert "What was tried: everything." in browser.evaluate("document.querySelector('details.error pre').innerText")
    tables.fail(path, "The disk is still full.")
    browser.wait_for("document.querySelector('details.error summary').innerText === 'The disk is still full.'")
    assert browser.evaluate("document.querySelector('details.error').open")


def test_the_page_refreshes_itself_unless_one_does_not_want_it(browser, airflow, tables, name):
    path = tables.create(name("changing"))
    browser.open(address(airflow, f"table?table={path}"))
    browser.wait_for("document.querySelector('.badge')?.innerText === 'Scheduled'")
    tables.fail(path)
    browser.wait_for("document.querySelector('.badge').innerText === 'Failed'")
    browser.evaluate("document.getElementById('refresh').click()")
    browser.open(address(airflow, "leases"))
    assert not browser.evaluate("document.getElementById('refresh').checked")
    browser.evaluate("document.getElementById('refresh').click()")


def test_keys_lead_through_the_page_in_its_order(browser, airflow, tables, name):
    tables.create(name("keys"))
    browser.open(address(airflow, f"./?q={name('keys')}"))
    browser.wait_for("document.querySelector('tbody a')")
    reached = []
    while not reached or not reached[-1].startswith(name("")):
        browser.press("Tab", 9)
        reached.append(
            browser.evaluate(
                "document.activeElement.innerText || document.activeElement.id || document.activeElement.ariaLabel"
            )
        )
        assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", reached[-1]
        assert len(reached) < 40
    first = ["Skip to the content", "Airflow", "Tables", "Leases"]
    assert reached[:4] == first
    assert [each for each in reached if each in {"refresh", "q"}] == ["refresh", "q"]
    assert "Records waiting" in reached
    browser.open(address(airflow, "./"))
    browser.press("Tab", 9)
    browser.press("Enter", 13)
    browser.wait_for("document.activeElement.id === 'live'")


def test_what_a_screen_reader_says_has_names(browser, airflow, tables, name):
    path = tables.create(name("named"))
    tables.fail(path)
    for each in (f"./?q={path}", f"table?table={path}", "leases"):
        browser.open(address(airflow, each))
        browser.wait_for("document.querySelector('h1')")
        tree = browser.call("Accessibility.getFullAXTree")["nodes"]
        nameless = [
            node["role"]["value"]
            for node in tree
            if not node["ignored"]
            and node["role"]["value"]
            in {"button", "checkbox", "combobox", "link", "searchbox", "table", "img", "navigation"}
            and not node["name"]["value"].strip()
        ]
        assert not nameless
        assert browser.evaluate("document.documentElement.lang") == "en"
        assert browser.evaluate("document.title").endswith("Lake tiering")


# What is to the right of the screen.
OUTSIDE = """(() => {
  const all = [...document.querySelectorAll("main *")];
  const shown = all.filter((each) => each.checkVisibility() && !each.closest("pre, svg"));
  return [document.documentElement.scrollWidth > innerWidth ? "the page" : "",
    ...shown.map((each) => [each.getBoundingClientRect(), each])
      .filter(([box, each]) => box.right > innerWidth + 1 && !each.closest(".unseen"))
      .map(([, each]) => each.outerHTML.slice(0, 99))].filter(Boolean);
})()"""


@pytest.mark.parametrize("width", [1440, 1024, 500])
def test_a_name_of_eighty_characters_leaves_everything_on_the_screen(browser, airflow, tables, name, width):  # E34
    long = tables.create(name("customer_orders_with_all_line_items_and_their_discounts_in_" + "x" * 30)[:80])
    endless = tables.create(name("y" * 80)[:80], rows=3)
    for path in (long, endless):
        tables.tier(path, 100_000_000)
        tables.fail(path, "Metadata file missing: " + "z" * 200)
    tables.claim(endless)
    tables.create(name("may_be_made_due"))
    browser.resize(width, 900)
    for each in (f"table?table={long}", f"table?table={endless}", "leases", f"./?q={name('')}"):
        browser.open(address(airflow, each))
        browser.wait_for("document.querySelector('tbody')")
        assert browser.evaluate(OUTSIDE) == [], each
    for each in (".badge", "details.error", "td.act button"):
        found = f"[...document.querySelectorAll('{each}')]"
        assert browser.evaluate(f"{found}.length > 0 && {found}.every((each) => each.checkVisibility())"), each


def test_a_round_leads_out_of_airflows_frame_to_the_log_of_its_task(browser, airflow, tables, name):  # E31
    path = tables.create(name("started_by_a_task"))
    tables.fail(path)
    browser.open(f"{airflow.url}/plugin/lake-tiering")
    browser.wait_for("document.querySelector('iframe')?.contentDocument?.querySelector('h1')")
    browser.evaluate(f"{FRAME}.defaultView.location = {json.dumps(address(airflow, f'table?table={path}'))}")
    browser.wait_for("document.querySelector('iframe')?.contentDocument?.querySelector('a.aside')")
    browser.follow(f"{FRAME}.querySelector('a.aside').click()")
    log = f"{airflow.path}/dags/fluss_tiering/runs/{quote(ORIGIN.run_id, safe='')}/tasks/tier.submit/mapped/0"
    browser.wait_for(f"location.pathname === {json.dumps(log)}")
    # Airflow does not know the run.
    browser.open(address(airflow, "leases"))
    browser.problems.clear()


def test_times_are_in_the_time_zone_that_was_chosen_in_airflow(browser, airflow, tables, name):  # E31
    path = tables.create(name("timed"))
    tables.tier(path)
    browser.open(address(airflow, f"table?table={path}"))
    full, axis = "document.querySelector('time.full').innerText", "document.querySelector('[data-time]').textContent"
    browser.wait_for(f"{full}.endsWith('UTC')")
    in_utc = browser.evaluate(axis)
    browser.evaluate("localStorage.setItem('timezone', 'Asia/Kolkata')")
    browser.open(address(airflow, f"table?table={path}"))
    browser.wait_for(f"{full}.endsWith('GMT+5:30')")
    assert browser.evaluate(axis) != in_utc
    browser.evaluate("localStorage.removeItem('timezone')")


def test_rounds_without_rows_can_be_unfolded(browser, airflow, tables, name):  # E32
    path = tables.create(name("quiet"))
    for rows in (0, 0, 5):
        tables.tier(path, rows)
    browser.open(address(airflow, f"table?table={path}"))
    shown = "[...document.querySelectorAll('tbody tr')].filter((each) => each.checkVisibility()).length"
    browser.wait_for(f"{shown} === 2")
    browser.evaluate("document.querySelector('.fold summary').click()")
    browser.wait_for(f"{shown} === 4")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_can_be_read_in_both_themes(browser, airflow, tables, name, theme):
    tables.park(tables.create(name("a")))
    path = tables.create(name("b"))
    tables.tier(path)
    tables.fail(path)
    tables.claim(tables.create(name("c"), rows=1))
    browser.prefer(theme)
    for each in (f"./?q={name('')}", f"table?table={path}", "leases", "./?conn=fluss_away"):
        browser.open(address(airflow, each))
        browser.wait_for(f"document.documentElement.dataset.theme === '{theme}'")
        worst, text = browser.evaluate(CONTRAST)
        assert worst >= 4.5, f"{text!r} has a contrast of {worst:.2f}"
    browser.problems = [each for each in browser.problems if "503" not in each]


def test_the_page_follows_the_theme_that_was_chosen_in_airflow(browser, airflow):
    browser.open(f"{airflow.url}/plugin/lake-tiering")
    browser.wait_for("document.querySelector('iframe')?.contentDocument?.querySelector('h1')")
    theme = f"{FRAME}.documentElement.dataset.theme"
    assert browser.evaluate(theme) == "light"
    # As Airflow's own switch does it.
    browser.evaluate("localStorage.setItem('theme', 'dark')")
    browser.wait_for(f"{theme} === 'dark'")
    background = "getComputedStyle({document}.{element}).backgroundColor"
    browser.open(f"{airflow.url}/plugin/lake-tiering")
    browser.wait_for("document.querySelector('iframe')?.contentDocument?.querySelector('h1')")
    assert browser.evaluate(background.format(document=FRAME, element="body")) == browser.evaluate(
        background.format(document="document", element="documentElement")
    )
    browser.evaluate("localStorage.removeItem('theme')")


def test_a_server_that_is_away_is_a_clear_message(browser, airflow):
    browser.open(address(airflow, "./?conn=fluss_away"))
    assert (
        browser.evaluate("document.querySelector('[role=alert] h2').innerText") == "The tiering server does not answer"
    )
    browser.evaluate("document.getElementById('conn').value = 'fluss_default'")
    browser.follow("document.getElementById('conn').dispatchEvent(new Event('change'))")
    assert browser.evaluate("new URL(location).searchParams.get('conn')") == "fluss_default"
    browser.wait_for("document.querySelector('.states')")
    browser.problems = [each for each in browser.problems if "503" not in each]


def test_a_table_is_resumed_and_a_lease_released_with_a_click(browser, airflow, client, tables, name):
    path = tables.create(name("acted_on"), rows=1)
    tables.park(path)
    browser.open(f"{airflow.url}/plugin/lake-tiering")
    browser.wait_for("document.querySelector('iframe')?.contentDocument?.querySelector('h1')")
    browser.evaluate(f"{FRAME}.defaultView.location = {json.dumps(address(airflow, f'table?table={path}'))}")
    browser.wait_for("document.querySelector('iframe')?.contentDocument?.querySelector('button.strong')")
    assert browser.evaluate(f"{FRAME}.querySelector('button.strong').innerText") == "Resume"
    browser.evaluate(f"{FRAME}.querySelector('button.strong').click()")
    told = f"{path} is Pending. The next run that tiers pending tables takes it."
    browser.wait_for(f"{FRAME}?.querySelector('[role=status]')?.innerText === {json.dumps(told)}")
    # The note is told once: it is not in the address that Airflow shows.
    browser.wait_for(f"!{FRAME}.defaultView.location.search.includes('note=')")
    tables.claim(path)
    lease = f"application-{path}"
    browser.open(address(airflow, "leases"))
    row = f"[...document.querySelectorAll('tbody tr')].find((each) => each.innerText.includes({json.dumps(lease)}))"
    browser.wait_for(row)
    assert not browser.evaluate(f"{row}.querySelector('button').checkVisibility()")
    browser.evaluate(f"{row}.querySelector('summary').focus()")
    browser.press("Enter", 13)
    browser.wait_for(f"{row}.querySelector('button').checkVisibility()")
    browser.follow(f"{row}.querySelector('button').click()")
    assert browser.evaluate("document.querySelector('[role=status]').innerText") == f"The lease {lease} is released."
    assert not client.list_leases(lease)

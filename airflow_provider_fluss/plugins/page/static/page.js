// What the page does beyond links and forms: it searches while one types, and refreshes itself.
(() => {
  const REFRESH_MS = 5000;
  const TYPING_MS = 250;
  const live = document.getElementById("live");
  const search = document.getElementById("q");
  let latest = 0;

  // The time zone that Airflow shows is in this browser, as the theme is.
  function writer(styles) {
    let chosen = "UTC";
    try {
      chosen = (localStorage.getItem("timezone") ?? chosen).replaceAll('"', "");
      return new Intl.DateTimeFormat(undefined, { timeZone: chosen, ...styles });
    } catch {
      return new Intl.DateTimeFormat(undefined, { timeZone: "UTC", ...styles });
    }
  }

  function localTimes() {
    const full = writer({ dateStyle: "medium", timeStyle: "long" });
    const short = writer({ month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });
    for (const each of document.querySelectorAll("time")) {
      each.title = full.format(new Date(each.dateTime));
      if (each.classList.contains("full")) each.textContent = each.title;
    }
    for (const each of document.querySelectorAll("[data-time]")) {
      each.textContent = short.format(new Date(each.dataset.time));
    }
  }

  // Airflow's frame lets no link out of it. The document around it follows the link instead.
  function onClick(event) {
    const link = event.target.closest("a[data-outside]");
    if (link === null || window.top === window) return;
    event.preventDefault();
    const outside = window.top.document.createElement("a");
    outside.href = link.href;
    outside.rel = "noopener noreferrer";
    outside.target = event.ctrlKey || event.metaKey ? "_blank" : link.target;
    outside.click();
  }

  // A page is not taken from under the hands of who reads an error, confirms an action or marks text.
  function inUse() {
    return document.hidden || live.querySelector("details.confirm[open]") || String(getSelection());
  }

  async function load(address, { leave = () => false } = {}) {
    const mine = ++latest;
    let answer;
    let text;
    try {
      answer = await fetch(address, { headers: { Accept: "text/html" } });
      text = await answer.text();
    } catch {
      return; // The API server is away for a moment. The next refresh tries again.
    }
    if (mine !== latest || leave()) return;
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("live");
    if (fresh === null) {
      location.reload(); // The login is over.
      return;
    }
    const open = [...live.querySelectorAll("details[open][id]")].map((each) => each.id);
    const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
    const scrolled = live.querySelector(".scroll");
    const left = scrolled === null ? 0 : scrolled.scrollLeft;
    live.replaceChildren(...fresh.childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    if (left) live.querySelector(".scroll")?.scrollTo({ left });
    localTimes();
  }

  function onSearch() {
    const address = new URL(location.href);
    address.searchParams.set("q", search.value);
    address.searchParams.delete("page");
    history.replaceState(null, "", address);
    load(address);
  }

  function startRefreshing() {
    const box = document.getElementById("refresh");
    if (box === null) return;
    box.parentElement.hidden = false;
    box.checked = localStorage.getItem("lake-tiering-refresh") !== "off";
    box.addEventListener("change", () => localStorage.setItem("lake-tiering-refresh", box.checked ? "on" : "off"));
    setInterval(() => {
      if (box.checked && !inUse()) load(location.href, { leave: inUse });
    }, REFRESH_MS);
  }

  for (const each of document.querySelectorAll("select[data-submits]")) {
    each.addEventListener("change", () => each.form.submit());
  }
  if (search !== null) {
    let timer;
    search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(onSearch, TYPING_MS);
    });
  }
  // A note tells once what an action did. It is no part of the address that one keeps.
  const address = new URL(location.href);
  if (address.searchParams.has("note")) {
    address.searchParams.delete("note");
    history.replaceState(null, "", address);
  }
  document.addEventListener("click", onClick);
  localTimes();
  startRefreshing();
})();

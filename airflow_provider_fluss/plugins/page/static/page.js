// What the page does beyond links and forms: it searches while one types, and refreshes itself.
(() => {
  const REFRESH_MS = 5000;
  const TYPING_MS = 250;
  const live = document.getElementById("live");
  const search = document.getElementById("q");
  let latest = 0;

  function localTimes() {
    for (const each of document.querySelectorAll("time")) {
      each.title = new Date(each.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
    }
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
  localTimes();
  startRefreshing();
})();

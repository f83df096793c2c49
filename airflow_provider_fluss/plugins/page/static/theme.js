// Takes over the theme of Airflow, which keeps its user's choice in this browser. Runs before the page is drawn.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try {
      const theme = localStorage.getItem("theme");
      if (theme === "light" || theme === "dark") return theme;
    } catch {
      // The browser keeps nothing for this page.
    }
    return dark.matches ? "dark" : "light";
  }

  function apply() {
    document.documentElement.dataset.theme = chosen();
  }

  apply();
  addEventListener("storage", apply);
  dark.addEventListener("change", apply);
  // Airflow shows the page in a frame below its own navigation. Alone, the page leads back to Airflow.
  document.documentElement.classList.toggle("alone", window.top === window);
})();

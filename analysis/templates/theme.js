// Theme: the system's unless the reader chooses; a page from disk may not be allowed to remember.
(() => {
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const order = ["automatic", "light", "dark"];
  let choice = "automatic";
  try { choice = localStorage.getItem("theme") || choice; } catch { /* not allowed: start afresh */ }
  const apply = () => {
    const theme = choice === "automatic" ? (dark.matches ? "dark" : "light") : choice;
    document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${choice}`;
  };
  button.addEventListener("click", () => {
    choice = order[(order.indexOf(choice) + 1) % order.length];
    try { localStorage.setItem("theme", choice); } catch { /* not allowed: for this visit only */ }
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
})();

"use strict";
// Keeps the part of a page about runs that go on as it is now, and loads the page again when one has
// begun or ended. Without this script the page is loaded again every few seconds.
(() => {
  const SECONDS = 1;
  const HIDDEN_SECONDS = 10;
  const part = document.getElementById("running");
  const warning = document.createElement("p");
  warning.className = "remark";
  warning.hidden = true;
  part.before(warning);
  let shown = part.innerHTML;

  async function look() {
    try {
      const answer = await fetch(part.dataset.source, { cache: "no-store" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("running");
      if (!answer.ok || fresh === null || fresh.dataset.state !== part.dataset.state) {
        location.reload();
        return;
      }
      if (fresh.innerHTML !== shown) {
        shown = fresh.innerHTML;
        part.replaceChildren(...fresh.childNodes);
      }
      warning.hidden = true;
    } catch {
      if (warning.hidden) {
        warning.textContent = "cepbench view does not answer: what is shown was true at " +
          new Date().toLocaleTimeString();
        warning.hidden = false;
      }
    }
    setTimeout(look, 1000 * (document.hidden ? HIDDEN_SECONDS : SECONDS));
  }

  setTimeout(look, 1000 * SECONDS);
})();

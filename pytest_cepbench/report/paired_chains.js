"use strict";
// Lays the pictures of a generation over each other: side by side, swipe or onion skin. Without this
// script the page has both as rows of a table.
(() => {
  const MODES = [["side by side", ""], ["swipe", "over"], ["onion skin", "over"]];
  const make = (name, properties, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const title = make("b", {});
  const stage = make("div", { className: "stage" });
  const slider = make("input", { type: "range", min: 0, max: 100, value: 50 });
  const buttons = MODES.map(([label], mode) =>
    make("button", { type: "button", textContent: label, onclick: () => show(mode) }));
  const previous = make("button", { type: "button", textContent: "previous", onclick: () => step(-1) });
  const next = make("button", { type: "button", textContent: "next", onclick: () => step(1) });
  const close = make("button", { type: "button", textContent: "close", onclick: () => viewer.close() });
  const viewer = make("dialog", { className: "viewer" },
    make("header", {}, title, ...buttons, previous, next, close), stage, slider);
  let openers = [];
  let place = 0;
  let mode = 0;

  function step(by) {
    place = (place + by + openers.length) % openers.length;
    show(mode);
  }

  function pictures(opener) {
    const column = opener.closest("th").cellIndex;
    return ["before", "now"].map((row) => {
      const tableRow = opener.closest("table").querySelector(`tr.${row}`);
      return [tableRow.cells[0].textContent, tableRow.cells[column].firstElementChild];
    });
  }

  function show(chosen) {
    mode = chosen;
    const opener = openers[place];
    title.textContent = `${opener.closest("table").dataset.sample}, generation ` +
      opener.closest("th").dataset.generation;
    stage.className = `stage ${MODES[mode][1]}`;
    stage.replaceChildren(...pictures(opener).map(([label, picture]) => {
      const copy = picture.cloneNode(true);
      copy.removeAttribute("id");
      return make("figure", {}, copy, make("figcaption", { textContent: mode ? "" : label }));
    }));
    const labels = pictures(opener).map(([label]) => label);
    slider.hidden = mode === 0;
    slider.setAttribute("aria-label", mode === 1
      ? `${labels[0]} to the left of here, ${labels[1]} to the right`
      : `from ${labels[0]} to ${labels[1]}`);
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", at === mode));
    previous.disabled = next.disabled = openers.length < 2;
    slide();
  }

  function slide() {
    const upper = stage.lastElementChild;
    upper.style.opacity = mode === 2 ? slider.value / 100 : 1;
    upper.style.clipPath = mode === 1 ? `inset(0 0 0 ${slider.value}%)` : "none";
  }

  function open(opener) {
    openers = [...opener.closest("table").querySelectorAll(".enlarge")];
    place = openers.indexOf(opener);
    show(mode);
    viewer.showModal();
  }

  slider.oninput = slide;
  viewer.setAttribute("aria-label", "compare pictures");
  viewer.addEventListener("keydown", (event) => {
    if (event.key >= "1" && event.key <= "3") show(Number(event.key) - 1);
    else if (event.target === slider) return;
    else if (event.key === "ArrowRight") step(1);
    else if (event.key === "ArrowLeft") step(-1);
  });
  document.body.append(viewer);
  for (const opener of document.querySelectorAll(".enlarge")) {
    opener.hidden = false;
    opener.onclick = () => open(opener);
    for (const [, picture] of pictures(opener)) {
      picture.classList.add("enlargeable");
      picture.addEventListener("click", (event) => {
        event.preventDefault(); // a picture beside the page is a link to its original
        open(opener);
      });
    }
  }
})();

"use strict";
// Every dot of the paired differences can be chosen, by pointer or with the slider below the plot:
// its sample and scores are shown, with the link to its chain or the command that shows it. Without
// this script the table below the plot has the samples and scores.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const command = document.querySelector("main").dataset.command;
  const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\"'\"'")}'`);
  const make = (name, properties, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };

  function places(plot) {
    const path = plot.querySelector(".dots").getAttribute("d");
    return [...path.matchAll(/M(\S+) (\S+?)h0/g)].map(([, x, y]) => [Number(x), Number(y)]);
  }

  function setUp(figure) {
    const plot = figure.querySelector("svg");
    const rows = figure.querySelector("tbody").rows;
    const dots = places(plot);
    const mark = document.createElementNS(SVG, "circle");
    mark.setAttribute("class", "mark");
    mark.setAttribute("r", 5.5);
    const slider = make("input", { type: "range", min: 0, max: dots.length - 1, value: 0 });
    slider.setAttribute("aria-label", "sample, by its difference");
    const output = make("output", { className: "chosen" });

    const choose = (at) => {
      const [sample, before, now, change] = rows[at].cells;
      const link = sample.querySelector("a");
      const name = sample.textContent;
      slider.value = at;
      slider.setAttribute("aria-valuetext", `${name}, ${change.textContent}`);
      [mark.cx.baseVal.value, mark.cy.baseVal.value] = dots[at];
      plot.append(mark);
      const heads = figure.querySelectorAll("thead th");
      output.replaceChildren(
        make("b", { textContent: name }),
        ` ${heads[1].textContent} ${before.textContent}, now ${now.textContent}, ` +
          `change ${change.textContent}. `,
        ...(link
          ? [make("a", { href: link.hash, textContent: "see it" })]
          : ["To see it, repeat the run, which computes nothing twice: ",
            make("code", { textContent: `${command} --cep-show=${quoted(name)}`.trim() })]));
    };

    const nearest = (event) => {
      const box = plot.getBoundingClientRect();
      const scale = plot.viewBox.baseVal.width / box.width;
      const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
      const distances = dots.map(([left, top]) => (left - x) ** 2 + (top - y) ** 2);
      return distances.indexOf(Math.min(...distances));
    };

    plot.addEventListener("click", (event) => choose(nearest(event)));
    slider.addEventListener("input", () => choose(Number(slider.value)));
    const hint = " Choose a dot, or move the slider, to see its sample.";
    figure.querySelector(".legend").append(make("span", { className: "hint", textContent: hint }));
    plot.after(slider);
    figure.querySelector(".values").before(output);
  }

  document.querySelectorAll(".differences").forEach(setUp);
})();

// Keeps the operator's page current.
"use strict";

const PERIOD = 5000; // milliseconds

async function refresh() {
  try {
    const response = await fetch(`${location.pathname}part`, { cache: "no-store" });
    if (response.ok) {
      document.getElementById("part").innerHTML = await response.text(); // escaped by the server
    }
  } catch {
    // the server has ended, or will answer the next time
  }
}

setInterval(() => { if (!document.hidden) refresh(); }, PERIOD);

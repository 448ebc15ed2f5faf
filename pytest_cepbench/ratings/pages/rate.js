// The page of a person who rates: shows items, keeps answers until the server has them on its disk.
"use strict";

const BASE = location.pathname; // ends with the token of the person
const KEPT = `cepbench ${BASE}`; // answers that were not sent yet, in this browser's storage
const RETRY = 3000; // milliseconds
const WAIT = 20000; // until it is asked again for items that others have
const DIGITS = "123456789";

const element = (id) => document.getElementById(id);
const stage = element("stage");

const state = {
  items: [], // what is shown, and what is loaded behind it
  state: "open", // as the server says: open, waiting or done
  unsent: kept(),
  sending: null,
  offline: false,
  shown: null,
  practising: false, // an answer is on its way, and its item stays until the feedback was read
  since: 0, // when it was shown
  hidden: 0, // milliseconds for which the page was hidden since then
  hiddenSince: 0,
  pasted: false,
  timer: 0,
};

// -- answers on their way --------------------------------------------------------------------------

function kept() {
  try { return JSON.parse(localStorage.getItem(KEPT)) ?? []; } catch { return []; }
}

function keep() {
  try {
    if (state.unsent.length) localStorage.setItem(KEPT, JSON.stringify(state.unsent));
    else localStorage.removeItem(KEPT);
  } catch {
    // a browser without storage: answers are in this page alone until they are sent
  }
}

function newKey() { // crypto.randomUUID is there on encrypted pages only
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

async function post(path, body) {
  return fetch(BASE + path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Cepbench": "1" },
    body: JSON.stringify(body),
  });
}

function say(words, busy = false) {
  element("status").textContent = words;
  element("status").classList.toggle("busy", busy);
}

function warn(words) {
  element("warning").textContent = words;
  element("warning").hidden = !words;
}

function unsentWords() {
  const count = state.unsent.length;
  return `${count} ${count === 1 ? "answer is" : "answers are"} kept in this browser and will be sent again`;
}

// Sends all answers that wait, in their order; true when none is left.
function send() {
  state.sending ??= sendAll().finally(() => { state.sending = null; });
  return state.sending;
}

async function sendAll() {
  clearTimeout(state.timer);
  while (state.unsent.length) {
    say("saving …", true);
    let response;
    try {
      response = await post("vote", state.unsent[0]);
    } catch {
      state.offline = true;
      return later("No connection to the server.");
    }
    state.offline = false;
    const reply = await response.json().catch(() => ({}));
    if (response.status >= 500 || response.status === 429) {
      return later(`Not saved: ${reply.reason ?? "the server has a problem"}.`);
    }
    const answer = state.unsent.shift();
    keep();
    if (response.ok) {
      warn("");
      say("saved");
      adopt(reply);
      if (reply.feedback && state.practising) tell(reply.feedback);
    } else {
      state.practising = false;
      say("");
      warn(`An answer was refused: ${reply.reason ?? response.status}`);
      if (state.items[0]?.slot !== answer.slot) await look();
    }
  }
  return true;
}

function later(words) {
  say("not saved", true);
  warn(`${words} ${unsentWords()}. What was saved before is safe.`);
  state.timer = setTimeout(resume, RETRY);
  if (!state.shown && !state.practising) showEnd();
  return false;
}

async function resume() {
  if (await send()) await look();
}

async function look() {
  clearTimeout(state.timer);
  try {
    const response = await fetch(`${BASE}upcoming`, { cache: "no-store" });
    const reply = await response.json();
    if (!response.ok) throw new Error(reply.reason);
    state.offline = false;
    warn("");
    adopt(reply);
  } catch {
    state.offline = true;
    if (!state.shown) showEnd();
    state.timer = setTimeout(resume, RETRY);
  }
}

// -- what is shown -----------------------------------------------------------------------------

function adopt(reply) {
  state.state = reply.state;
  const { done, about } = reply.progress;
  const over = done >= about || reply.state === "done"; // others did less, or more
  element("progress").textContent = over ? `${done} done` : `${done} of about ${about}`;
  const waits = new Set(state.unsent.map((answer) => answer.slot));
  const upcoming = reply.items.filter((item) => !waits.has(item.slot));
  const shown = state.shown && upcoming.find((item) => item.slot === state.shown.slot);
  if (state.shown && !shown && upcoming.length && !state.unsent.length) state.shown = null;
  state.items = state.shown
    ? [state.shown, ...upcoming.filter((item) => item.slot !== state.shown.slot)]
    : upcoming;
  for (const item of state.items.slice(1)) preload(item);
  if (!state.shown && !state.practising) show();
}

function preload(item) {
  for (const name of item.images) new Image().src = `${BASE}image/${name}`;
}

function show() {
  const item = state.items[0];
  state.shown = item ?? null;
  if (!item) return showEnd();
  const template = document.createElement("template");
  template.innerHTML = item.html; // of the server's templates, which escape every text of models
  stage.replaceChildren(template.content);
  stage.dataset.slot = item.slot;
  Object.assign(state, { since: performance.now(), hidden: 0, pasted: false });
  state.hiddenSince = document.hidden ? performance.now() : 0;
  element("note-text").value = "";
  element("tools").hidden = false;
  document.documentElement.scrollTop = 0;
  (stage.querySelector("textarea") ?? stage.querySelector("h1")).focus({ preventScroll: true });
  markOutput(0);
  check();
}

function showEnd() {
  delete stage.dataset.slot;
  const words = document.createElement("p");
  words.className = "end";
  words.textContent = state.offline
    ? "No connection to the server. This page goes on by itself when it is back."
    : state.unsent.length
      ? "The next item comes when your answers are saved."
      : state.state === "done"
        ? "All done. Thank you!"
        : "Other people have the items that are left. This page looks again by itself.";
  stage.replaceChildren(words);
  if (state.state === "waiting" && !state.offline) {
    clearTimeout(state.timer);
    state.timer = setTimeout(resume, WAIT);
  }
}

function tell(feedback) {
  element("feedback-title").textContent = feedback.right ? "That is right." : "Another answer was expected.";
  element("feedback-expected").textContent = feedback.expected;
  element("feedback-why").textContent = feedback.why;
  open("feedback-dialog");
}

// -- answers -------------------------------------------------------------------------------------

function answer(fields) {
  const item = state.items.shift();
  const seconds = (performance.now() - state.since - state.hidden) / 1000;
  state.unsent.push({
    key: newKey(),
    slot: item.slot,
    seconds: Math.round(seconds * 100) / 100,
    browser: [innerWidth, innerHeight],
    note: element("note-text").value.trim(),
    ...fields,
  });
  keep();
  state.shown = null;
  state.practising = item.practice;
  if (!item.practice) show();
  send();
}

async function undo() {
  if (!(await send())) return;
  const key = newKey();
  let response;
  try {
    response = await post("undo", { key });
  } catch {
    return say("No connection: nothing was undone.", true);
  }
  const reply = await response.json().catch(() => ({}));
  if (!response.ok) return warn(`Nothing was undone: ${reply.reason ?? response.status}`);
  state.shown = null;
  adopt(reply);
  say(reply.undone ? "taken back" : "nothing to take back", !reply.undone);
}

const outputs = () => [...stage.querySelectorAll(".output")];

function markOutput(number) {
  const all = outputs();
  if (!all.length) return;
  const place = (number + all.length) % all.length;
  all.forEach((output, at) => output.classList.toggle("current", at === place));
  return all[place];
}

const currentOutput = () => outputs().findIndex((output) => output.classList.contains("current"));

function gradeOf(output) { return output.querySelector("input:checked")?.value ?? ""; }

function rankOf(output) { return Number(output.querySelector("select").value); }

function check() { // whether there is an answer to save
  const save = stage.querySelector("button.save");
  if (!save || save.id === "agree") return;
  const text = stage.querySelector("textarea");
  if (text) {
    const words = text.value.split(/\s+/).filter(Boolean).length;
    const most = Number(stage.querySelector("#words").textContent.match(/most (\d+)/)[1]);
    stage.querySelector(".count").textContent = words;
    stage.querySelector("#words").classList.toggle("over", words > most);
    save.disabled = words === 0 || words > most;
  } else {
    save.disabled = !outputs().every((output) => gradeOf(output) && rankOf(output));
  }
}

function save() {
  check();
  if (stage.querySelector("button.save")?.disabled ?? true) return;
  const text = stage.querySelector("textarea");
  if (text) return answer({ text: text.value, pasted: state.pasted });
  if (outputs().length) return answer({ grades: outputs().map(gradeOf), ranks: outputs().map(rankOf) });
  const ticked = (name) => [...stage.querySelectorAll(`input.${name}:checked`)].map((box) => box.value);
  return answer({ ticked: ticked("offered").map(Number), added: ticked("other") });
}

// -- keys and pointers ---------------------------------------------------------------------------

function open(id) {
  const dialog = element(id);
  if (!dialog.open) dialog.showModal();
  dialog.querySelector("button.save, textarea, .reasons button")?.focus();
}

function enlarge() {
  const large = document.body.classList.toggle("large");
  element("enlarge").setAttribute("aria-pressed", large);
}

const TOOLS = { u: undo, s: () => open("skip-dialog"), n: () => open("note-dialog"), "?": () => open("help-dialog") };

function press(event) {
  if (event.repeat || event.altKey || event.metaKey || !state.shown) return;
  const dialog = document.querySelector("dialog[open]");
  if (dialog) return pressInDialog(event, dialog);
  const written = event.target.matches("textarea, input[type=text]");
  if (event.key === "Enter" && (event.ctrlKey || !written) && !event.target.matches("button, summary")) {
    event.preventDefault();
    return save();
  }
  if (event.ctrlKey || written) return;
  if (event.key === " " && !event.target.matches("button, summary, input, select")) {
    event.preventDefault();
    return enlarge();
  }
  if (act(event.key)) event.preventDefault();
}

function pressInDialog(event, dialog) {
  const place = DIGITS.indexOf(event.key);
  const reasons = dialog.querySelectorAll("[data-reason]");
  if (place >= 0 && reasons[place]) reasons[place].click();
}

// Does what a key stands for in the task; false where it stands for nothing.
function act(key) {
  const place = DIGITS.indexOf(key);
  const verdicts = stage.querySelectorAll("[data-verdict]");
  const boxes = stage.querySelectorAll("input.offered");
  if (place >= 0 && verdicts[place]) verdicts[place].click();
  else if (place >= 0 && boxes[place]) boxes[place].click();
  else if (outputs().length && mark(key, place)) check();
  else if (TOOLS[key]) TOOLS[key]();
  else return false;
  return true;
}

function mark(key, place) { // a grade, a rank, or another output
  const at = currentOutput();
  const output = outputs()[at];
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key];
  const grade = { g: "good", m: "medium", p: "poor" }[key];
  if (step) markOutput(at + step).querySelector("input").focus();
  else if (grade) output.querySelector(`input[value=${grade}]`).checked = true;
  else if (place >= 0 && place < outputs().length) output.querySelector("select").value = place + 1;
  else return false;
  if (!step && gradeOf(output) && rankOf(output) && at + 1 < outputs().length) {
    markOutput(at + 1).scrollIntoView({ block: "nearest" });
  }
  return true;
}

function click(event) {
  const button = event.target.closest("button");
  const output = event.target.closest(".output");
  if (output) markOutput(outputs().indexOf(output));
  if (event.target.matches(".picture")) return enlarge();
  if (!button) return;
  if (button.dataset.verdict && state.shown) answer({ verdict: button.dataset.verdict });
  else if (button.dataset.reason) {
    button.closest("dialog").close();
    if (state.shown) answer({ skip: button.dataset.reason });
  } else if (button.id === "agree") agree();
  else if (button.matches(".close")) button.closest("dialog").close();
  else if (button.matches(".save")) save();
  else if (button.id === "undo") undo();
  else if (button.id === "enlarge") enlarge();
  else if (["skip", "note", "help"].includes(button.id)) open(`${button.id}-dialog`);
}

async function agree() {
  try {
    const response = await post("agree", {});
    const reply = await response.json();
    if (!response.ok) return warn(`Not saved: ${reply.reason}`);
    await begin();
  } catch {
    warn("No connection to the server: press again in a moment.");
  }
}

async function begin() {
  if (await send()) await look();
}

document.addEventListener("keydown", press);
document.addEventListener("click", click);
document.addEventListener("input", check);
document.addEventListener("focusin", (event) => {
  const output = event.target.closest?.(".output");
  if (output) markOutput(outputs().indexOf(output));
});
document.addEventListener("paste", (event) => {
  if (event.target.matches("#description")) state.pasted = true;
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) state.hiddenSince = performance.now();
  else if (state.hiddenSince) {
    state.hidden += performance.now() - state.hiddenSince;
    state.hiddenSince = 0;
  }
});
element("feedback-dialog").addEventListener("close", () => {
  state.practising = false;
  show();
});
addEventListener("online", resume);
addEventListener("offline", () => { state.offline = true; });
if (!element("intro")) begin();

// The page of a person who rates: shows items, keeps answers until the server has them on its disk.
"use strict";

const BASE = location.pathname; // ends with the token of the person
const KEPT = `cepbench ${BASE} answer `; // in this browser's storage: an answer that was not sent
const RETRY = 3000; // milliseconds
const LOOKED = 250; // milliseconds; nobody has seen an item in less
const NOTICED = 5000; // milliseconds for which a refusal stays, whatever is answered meanwhile
const DIGITS = "123456789";

const element = (id) => document.getElementById(id);
const stage = element("stage");

const state = {
  items: [], // what is shown, and what is loaded behind it
  state: "open", // as the server says: open or done
  unsent: [], // answers on their way, the first one first: their name in the storage, and what is sent
  sending: null,
  offline: false,
  refusal: "", // what the server said of an answer that is wrong in itself
  refusedAt: 0,
  undoing: "", // key of what is taken back, until the server says that it is
  shown: null,
  since: 0, // when it was shown
  hidden: 0, // milliseconds for which the page was hidden since then
  hiddenSince: 0,
  pasted: false,
  filled: false, // whether something is filled in of what is shown
  timer: 0,
};

// -- answers on their way --------------------------------------------------------------------------

// Storage may be full or switched off: then answers are in this page alone.
function store(name, value) { // nothing is kept where there is no value
  try {
    if (value) localStorage.setItem(name, JSON.stringify(value));
    else localStorage.removeItem(name);
  } catch { /* as above */ }
}

// Takes over what this person's other pages have left: each answer has a name of its own.
function collect() {
  const own = new Set(state.unsent.map(([name]) => name));
  try {
    const names = Object.keys(localStorage).filter((name) => name.startsWith(KEPT) && !own.has(name));
    const left = names.map((name) => [name, JSON.parse(localStorage.getItem(name))]);
    state.unsent.push(...left.filter(([, answer]) => answer));
  } catch { /* as above */ }
  state.unsent.sort(([a], [b]) => (a < b ? -1 : 1));
}

function newKey() { // crypto.randomUUID is there on encrypted pages only
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

async function post(path, body) {
  const headers = { "Content-Type": "application/json", "X-Cepbench": "1" };
  return fetch(BASE + path, { method: "POST", headers, body: JSON.stringify(body) });
}

function say(words, busy = false) {
  element("status").textContent = words;
  element("status").classList.toggle("busy", busy);
}

function warn(words) {
  const text = [state.refusal, words].filter(Boolean).join(" ");
  element("warning").textContent = text;
  element("warning").hidden = !text;
}

// Sends all answers that wait, in their order; true when none is left.
function send() {
  return state.sending ??= sendAll().finally(() => { state.sending = null; });
}

async function sendAll() {
  clearTimeout(state.timer);
  collect();
  while (state.unsent.length) {
    say("saving …", true);
    const [name, answer] = state.unsent[0];
    const response = await post("vote", answer).catch(() => null);
    state.offline = !response;
    if (!response) return later("No connection to the server.");
    const reply = await response.json().catch(() => ({}));
    // Whether it is the answer that is wrong, and not the address or what lies between.
    const wrong = [400, 409, 413, 422].includes(response.status) && reply.saved === false;
    if (!response.ok && !wrong) return refused(response, reply);
    state.unsent.shift();
    store(name, null);
    if (response.ok) {
      warn("");
      say("saved");
      adopt(reply);
    } else {
      state.refusal = `An answer was refused, and is not saved: ${reply.reason ?? response.status}.`;
      state.refusedAt = performance.now();
      say("");
      warn("");
      if (state.items[0]?.slot !== answer.slot) await look();
    }
  }
  return true;
}

// Says why the server takes nothing now; answers stay in this browser. False, for `send`.
function refused(response, reply) {
  const unknown = "The server does not know this address. Reload this page, or ask for a new address if that does not help.";
  return later(response.status === 404 ? unknown : `Not saved: ${reply.reason ?? "the server has a problem"}.`);
}

function later(words) {
  const count = state.unsent.length;
  const answers = `${count} ${count === 1 ? "answer is" : "answers are"}`;
  const kept = `${answers} kept in this browser and will be sent again. What was saved before is safe.`;
  say(count ? "not saved" : "", true);
  warn(count ? `${words} ${kept}` : words);
  state.timer = setTimeout(resume, RETRY);
  if (!state.shown) showEnd();
  return false;
}

async function resume() {
  if (await send()) await look();
}

async function look() {
  clearTimeout(state.timer);
  const response = await fetch(`${BASE}upcoming`, { cache: "no-store" }).catch(() => null);
  const reply = await response?.json().catch(() => null);
  state.offline = !reply;
  if (!reply) return later("No connection to the server.");
  if (!response.ok) return refused(response, reply);
  warn("");
  adopt(reply);
}

// -- what is shown -----------------------------------------------------------------------------

function adopt(reply) {
  state.state = reply.state;
  const { done, about } = reply.progress;
  const over = done >= about || reply.state === "done"; // others did less, or more
  element("progress").textContent = over ? `${done} done` : `${done} of about ${about}`;
  const waits = new Set(state.unsent.map(([, answer]) => answer.slot));
  const upcoming = reply.items.filter((item) => !waits.has(item.slot));
  const shown = state.shown && upcoming.find((item) => item.slot === state.shown.slot);
  // What others have answered meanwhile gives way, but not under the hands of who is answering it.
  if (state.shown && !shown && upcoming.length && !state.unsent.length && !state.filled) state.shown = null;
  state.items = state.shown
    ? [state.shown, ...upcoming.filter((item) => item.slot !== state.shown.slot)]
    : upcoming;
  for (const name of state.items.slice(1).flatMap((item) => item.images)) new Image().src = `${BASE}image/${name}`;
  if (!state.shown) show();
  if (history.state) return;
  if (done === 0 && state.shown) open("help-dialog"); // what to look at
  history.replaceState("seen", ""); // kept over a reload, also where all storage is switched off
}

function show() {
  const item = state.items[0];
  state.shown = item ?? null;
  if (!item) return showEnd();
  const template = document.createElement("template");
  template.innerHTML = item.html; // of the server's templates, which escape every text of models
  stage.replaceChildren(template.content);
  stage.dataset.slot = item.slot;
  Object.assign(state, { since: performance.now(), hidden: 0, pasted: false, filled: false });
  state.hiddenSince = document.hidden ? performance.now() : 0;
  element("note-text").value = "";
  showTools();
  document.documentElement.scrollTop = 0;
  (stage.querySelector("textarea") ?? stage.querySelector("h1")).focus({ preventScroll: true });
  markOutput(0);
  check();
}

function showTools() { // at the end there is nothing to skip, to note or to enlarge
  for (const id of ["skip", "note", "enlarge"]) element(id).hidden = !state.shown;
  element("tools").hidden = false;
}

function showEnd() {
  showTools();
  delete stage.dataset.slot;
  const words = document.createElement("p");
  words.className = "end";
  words.textContent = "Nothing can be saved now. This page tries again by itself.";
  if (state.offline) words.textContent = "No connection to the server. This page goes on by itself when it is back.";
  else if (state.unsent.length) words.textContent = "The next item comes when your answers are saved.";
  else if (state.state === "done") words.textContent = "All done. Thank you!";
  stage.replaceChildren(words);
}

// -- answers -------------------------------------------------------------------------------------

// Whether a click or a key can be an answer to what is shown, and not to what was there before.
function isMeant(event) {
  if (!state.shown || event.detail > 1) return false; // the second click of a double click
  if (performance.now() - state.since >= LOOKED) return true;
  say("not counted: this item has only just come", true);
  return false;
}

function answer(fields) {
  const item = state.items.shift();
  const seconds = (performance.now() - state.since - state.hidden) / 1000;
  if (performance.now() - state.refusedAt > NOTICED) state.refusal = "";
  state.undoing = "";
  const key = newKey();
  const name = `${KEPT}${String(Date.now()).padStart(15, "0")} ${key}`;
  const content = {
    key,
    slot: item.slot,
    seconds: Math.round(seconds * 100) / 100,
    browser: [innerWidth, innerHeight],
    note: element("note-text").value.trim(),
    ...fields,
  };
  state.unsent.push([name, content]);
  store(name, content);
  state.shown = null;
  show();
  send();
}

async function undo() {
  if (!(await send())) return;
  state.undoing ||= newKey(); // the same again where a reply was lost: what was done is not done twice
  const response = await post("undo", { key: state.undoing }).catch(() => null);
  if (!response) return say("No connection: try again to take it back.", true);
  const reply = await response.json().catch(() => ({}));
  if (!response.ok) return warn(`Nothing was undone: ${reply.reason ?? response.status}`);
  const back = reply.answer;
  state.undoing = "";
  state.shown = null;
  adopt(reply);
  if (!back) return say("nothing to take back", true);
  const text = stage.querySelector("textarea"); // a description can be changed; the rest is soon said again
  if (text && back.slot === state.shown?.slot) {
    text.value = back.text;
    Object.assign(state, { pasted: back.pasted, filled: true });
  }
  check();
  say("taken back");
}

// -- what is filled in ---------------------------------------------------------------------------

const ticks = (name) => [...stage.querySelectorAll(`input.${name}`)];

const ticked = (name) => ticks(name).filter((box) => box.checked).map((box) => box.value);

function errors() { // kinds of errors by the letter of the answer that has them
  const own = [..."AB"].map((letter) => [letter, ticked(`error[data-of=${letter}]`)]);
  return Object.fromEntries(own.filter(([, kinds]) => kinds.length));
}

const outputs = () => [...stage.querySelectorAll(".output")];

function markOutput(number) {
  const all = outputs();
  if (!all.length) return;
  const place = (number + all.length) % all.length;
  all.forEach((output, at) => output.classList.toggle("current", at === place));
  return all[place];
}

const gradeOf = (output) => output.querySelector("input:checked")?.value ?? "";

const rankOf = (output) => Number(output.querySelector("select").value);

function fill() { // something was filled in
  state.filled = true;
  check();
}

function check() { // whether there is an answer to save
  const save = stage.querySelector("button.save");
  if (!save) return;
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

function save(event) {
  check();
  if (stage.querySelector("button.save")?.disabled ?? true) return;
  if (!isMeant(event)) return;
  const text = stage.querySelector("textarea");
  if (text) return answer({ text: text.value, pasted: state.pasted });
  if (outputs().length) return answer({ grades: outputs().map(gradeOf), ranks: outputs().map(rankOf) });
  return answer({ ticked: ticked("offered").map(Number), added: ticked("other").map(Number) });
}

// -- keys and pointers ---------------------------------------------------------------------------

function open(id) {
  const dialog = element(id);
  if (!dialog.open) dialog.showModal();
  dialog.querySelector("button.save, textarea, .reasons button")?.focus();
}

// The images of the answers, or of what is described; the question's own where it is clicked.
function enlarge(picture = null) {
  const question = picture?.closest(".pair .question, .grades .question");
  if (question) return question.classList.toggle("alone");
  const large = document.body.classList.toggle("large");
  element("enlarge").setAttribute("aria-pressed", large);
}

const TOOLS = { undo, enlarge: () => enlarge() }; // by the ids of their buttons
for (const id of ["skip", "note", "help"]) TOOLS[id] = () => open(`${id}-dialog`);

const KEYS = { u: "undo", s: "skip", n: "note", "?": "help" };

function press(event) {
  if (event.repeat || event.altKey || event.metaKey) return;
  const dialog = document.querySelector("dialog[open]");
  if (dialog && event.ctrlKey) return; // a key of the browser, such as of another tab
  if (dialog) return dialog.querySelectorAll("[data-reason]")[DIGITS.indexOf(event.key)]?.click();
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key; // with Caps Lock too
  // At the end there is still something to take back, and to read.
  if (!state.shown && (event.ctrlKey || !["u", "?"].includes(key))) return;
  const written = event.target.matches("textarea, input[type=text]");
  if (event.key === "Enter" && (event.ctrlKey || !written) && !event.target.matches("button, summary")) {
    event.preventDefault();
    return save(event);
  }
  if (event.ctrlKey || written) return;
  if (event.key === " " && !event.target.matches("button, summary, input, select")) {
    event.preventDefault();
    return enlarge();
  }
  if (key.startsWith("Arrow") && event.target.matches("select")) return; // they choose a rank there
  if (act(key)) event.preventDefault();
}

// Does what a key stands for in the task; false where it stands for nothing.
function act(key) {
  const place = DIGITS.indexOf(key);
  const named = stage.querySelectorAll("[data-verdict], input.offered")[place];
  if (named) named.click();
  else if (outputs().length && mark(key, place)) fill();
  else if (KEYS[key]) TOOLS[KEYS[key]]();
  else return false;
  return true;
}

function mark(key, place) { // a grade, a rank, or another output
  const at = outputs().findIndex((output) => output.classList.contains("current"));
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
  if (event.target.matches(".picture")) return enlarge(event.target);
  if (!button) return;
  if (button.dataset.verdict) {
    if (isMeant(event)) answer({ verdict: button.dataset.verdict, errors: errors() });
  } else if (button.dataset.reason) {
    button.closest("dialog").close();
    if (isMeant(event)) answer({ skip: button.dataset.reason });
  } else if (button.matches(".close")) button.closest("dialog").close();
  else if (button.matches(".save")) save(event);
  else if (TOOLS[button.id]) TOOLS[button.id]();
}

document.addEventListener("keydown", press);
document.addEventListener("click", click);
document.addEventListener("input", fill);
addEventListener("beforeunload", (event) => { if (state.shown && state.filled) event.preventDefault(); });
document.addEventListener("focusin", (event) => {
  const output = event.target.closest?.(".output");
  if (output) markOutput(outputs().indexOf(output));
});
document.addEventListener("paste", (event) => { state.pasted ||= event.target.matches("#description"); });
document.addEventListener("visibilitychange", () => {
  if (document.hidden) state.hiddenSince = performance.now();
  else if (state.hiddenSince) {
    state.hidden += performance.now() - state.hiddenSince;
    state.hiddenSince = 0;
  }
});
addEventListener("online", resume);
addEventListener("offline", () => { state.offline = true; });
collect();
resume();

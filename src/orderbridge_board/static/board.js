// The board: takes the whole state after each change, and shows it. It remembers nothing that the daemon does not know.

import { loud, paintBar, showProblems } from "./bar.js";
import { ask, el, install, language, learn, pairing, say, speak, tell, version } from "./common.js";
import { closeDialog, dialog } from "./dialog.js";
import { cards, closeGaps, failedTaps, forget, paint, paintAge, settle } from "./grid.js";
import { paintHead, showPanel } from "./head.js";
import { makeLanes } from "./lanes.js";
import { paintMenu } from "./menu.js";
import { paintRecall } from "./recall.js";
import { arm, isOn, sound } from "./sound.js";
import { isPressed, steady, watchFingers, whenLifted } from "./steady.js";
import { onKey, onTap } from "./taps.js";

const STALE_MS = 25000;
const DOWN_MS = 3000; // so long a page that was just opened waits for its first answer
const HERE_MS = 5000;
const AGAIN_MS = 1000; // a daemon that was started anew is shown within 5 s
const AFRESH_MS = 10000; // a line that says nothing is dropped so often, and taken anew
const SLEPT_MS = 2000;
const IDLE_MS = 30000; // for so long nobody has touched anything: the page may be loaded anew

const $ = (id) => document.getElementById(id);
let state = null; // the last one
let begun = mark();
let heard = mark(); // when these cards were last known to be as the tables are
let read = null; // the daemon's time of that state, and ours
let isBehind = false; // the last try to take the state has failed
let failure = ""; // what the daemon said of it
let stream = null;
let tried = mark(); // when the stream was last opened
let laterState = 0; // one timer each: tries that add up keep a tablet busy all night
let laterStream = 0;
let ticked = mark();
let view = "arm"; // arm, pair, orders, menu, recall
let touched = mark();
let isCut = false; // the line is gone, and is taken anew
let hear = []; // the tablets that can be heard
let told = null; // what was last told of our being heard
let toldAt = mark();
let problems = []; // what is wrong, also of a state that could not be read
let isOld = false; // the daemon has another page than this one
let refreshing = false;
let again = false;

// By both clocks: people and time servers set the one, and the other stands still while a tablet sleeps.
function mark() { return { wall: Date.now(), run: performance.now() }; }
function since(then) { return Math.max(Date.now() - then.wall, performance.now() - then.run); }

// ---- the state, and the stream that says when to take it -----------------------------------------------------------

async function refresh() {
  if (refreshing) { again = true; return; }
  refreshing = true;
  clearTimeout(laterState);
  try {
    do {
      again = false;
      take(await ask("state"));
      if (view === "menu" && !isBehind) await repaintMenu();
      if (view === "recall" && !isBehind) await repaintRecall();
    } while (again && !isBehind);
  } finally {
    refreshing = false;
    if (isBehind && view !== "pair") laterState = setTimeout(refresh, AGAIN_MS);
  }
  tick();
}

function take({ status, data }) {
  isBehind = true; // until it is painted
  if (status === 401) {
    state = null;
    isBehind = false;
    if (view !== "pair") show("pair"); // who types digits there types on
  } else if (status === 200) {
    isOld = data.page !== version;
    read = { now: Date.parse(data.now), run: performance.now() };
    state = data;
    problems = data.problems;
    settle();
    repaint();
    heard = mark();
    failure = "";
    isBehind = false;
  } else {
    isCut ||= status === 0;
    failure = data.text ?? "";
    if (data.problems) problems = data.problems;
  }
}

function connect() {
  tried = mark();
  clearTimeout(laterStream);
  stream?.close();
  stream = new EventSource("/board/stream");
  stream.addEventListener("open", () => { isCut = false; });
  stream.addEventListener("changed", refresh);
  stream.addEventListener("beat", ({ data }) => {
    if (!isBehind) heard = mark();
    if (state && Number(data) !== state.n) refresh(); // whatever became of the word that it had changed
    tick();
  });
  stream.addEventListener("error", () => {
    stream.close();
    isCut = true; // said at once, not after the silence that makes the cards grey
    clearTimeout(laterStream);
    laterStream = setTimeout(() => { if (view !== "pair") connect(); }, AGAIN_MS);
    refresh();
  });
}

// ---- once a second: ages, sound, what is broken --------------------------------------------------------------------

const now = () => read.now + performance.now() - read.run; // the daemon's
const shown = () => (view === "pair"
  ? { state: null, view, problems: [], failure: "", failedTaps: [], isLost: false, isCut: false, isAudible: true }
  : { state, view, problems, failure, failedTaps: failedTaps(), isLost: isStale(), isCut, isAudible: isAudible() });
const isDown = () => view !== "pair" && !state && (isCut || (!isBehind && since(begun) > DOWN_MS)); // nothing has answered since this page was opened
const isStale = () => isDown() || since(heard) > STALE_MS;
const isAudible = () => isOn() && document.visibilityState === "visible";

function tick() {
  const isLost = isStale();
  comeBack(isLost);
  document.body.classList.toggle("stale", isLost);
  $("down").hidden = !isDown();
  if (state) for (const card of cards.values()) paintAge(card, now());
  const isPaired = view !== "pair";
  sound(!isPaired ? [] : isLost ? ["line"] : state?.sounds ?? []);
  whenLifted("bar", () => steady(".card[data-key]", paintTop));
  sayHere();
  closeGaps(since(touched), state);
}

function paintTop() {
  paintBar(shown());
  paintHead({ ...shown(), now: read && now(), heardMs: since(heard), hear });
  $("title").classList.toggle("unseen", view !== "pair");
}

// A line that was cut without a word gives no error. One that slept, or whose clock was set, knows no age.
function comeBack(isLost) {
  const last = ticked;
  ticked = mark();
  if (view === "pair" || !stream) return;
  if (isLost && since(tried) > AFRESH_MS) { connect(); refresh(); }
  if (Math.abs(ticked.wall - last.wall - (ticked.run - last.run)) > SLEPT_MS) refresh();
  if (isOld && !isLost && !dialog() && since(touched) > IDLE_MS) location.reload();
}

async function sayHere() {
  const audible = isAudible() && view !== "arm";
  if (view === "pair" || (audible === told && since(toldAt) < HERE_MS)) return;
  told = audible;
  toldAt = mark();
  const { status, data } = await tell("here", { audible });
  if (status === 200) hear = data.hear;
}

function repaint() {
  if (view === "orders") paint(state, now, isPressed() ? 0 : since(touched));
}

const repaintMenu = () => paintMenu($("main"), state?.role === "act", () => view === "menu");
const repaintRecall = () => paintRecall($("main"), state, () => view === "recall");

// ---- the bar -------------------------------------------------------------------------------------------------------

function onBar() {
  if (!isOn()) arm().then(tick);
  else showProblems();
}

// To the order that waits, from whichever page; of a restaurant that is closed to where it is opened.
function onCall({ target }) {
  const call = target.closest("[data-call]");
  if (!call) return;
  const key = call.dataset.call;
  if (!key) return void show("menu");
  if (view !== "orders") show("orders");
  cards.get(key)?.element.scrollIntoView(); // its head, however long it is
  cards.get(key)?.element.focus({ preventScroll: true });
}

// ---- what is shown -------------------------------------------------------------------------------------------------

function show(what) {
  view = what;
  document.body.dataset.view = what;
  closeDialog();
  forget();
  const main = $("main");
  for (const name of ["menu", "recall"]) {
    $(name).hidden = what === "arm" || what === "pair";
    $(name).textContent = say(what === name ? "orders" : name);
  }
  $("language").textContent = say("other_language");
  $("mute").textContent = say("silence");
  $("title").textContent = say("title");
  $("down").textContent = say("down");
  document.title = say("title");
  if (what === "pair") {
    main.replaceChildren(pairing(() => { show("arm"); start(); }));
  } else if (what === "arm") {
    const big = el("button", { type: "button", id: "arm" }, el("span", { class: "huge" }, say("arm")), el("span", { class: "why" }, say("arm_why")),
      "wakeLock" in navigator ? null : el("span", { class: "why" }, say("no_wake_lock")));
    big.addEventListener("click", async () => { await arm(); show("orders"); });
    main.replaceChildren(big);
  } else if (what === "menu") {
    main.replaceChildren();
    repaintMenu();
  } else if (what === "recall") {
    main.replaceChildren();
    repaintRecall();
  } else {
    main.replaceChildren(
      el("div", { id: "empty", hidden: true }, el("p", {}, say("empty")), el("p", { id: "alive" })), makeLanes(),
      el("p", { id: "awake", hidden: true }, say("no_wake_lock")),
    );
    repaint();
    stayAwake();
  }
  tick();
}

// The screen stays on where the browser allows it; where not, that is said below the cards.
async function stayAwake() {
  let isKept = false;
  try { isKept = Boolean(await navigator.wakeLock?.request("screen")); } catch { /* as on a plain line, or with a battery that is low */ }
  if ($("awake")) $("awake").hidden = isKept;
}

async function start() {
  begun = mark();
  await refresh();
  if (view === "pair") return;
  connect();
  if (view === "arm" && (await arm())) show("orders"); // no touch is needed here
}

const page = { state: () => state, repaint, refresh, repaintMenu, repaintRecall };

await learn();
install();
watchFingers();
$("bar").addEventListener("click", onBar);
$("calls").addEventListener("click", onCall);
$("mute").addEventListener("click", () => tell("seen", { subjects: loud(shown()) }));
for (const name of ["menu", "recall"]) $(name).addEventListener("click", () => show(view === name ? "orders" : name));
$("panel").addEventListener("click", showPanel);
$("language").addEventListener("click", () => { speak(language() === "tr" ? "en" : "tr"); show(view); refresh(); });
document.addEventListener("click", (event) => { touched = mark(); onTap(event, page); });
for (const name of ["pointerdown", "pointerup", "pointercancel"]) document.addEventListener(name, () => { touched = mark(); });
addEventListener("resize", () => repaint());
document.addEventListener("keydown", (event) => { touched = mark(); onKey(event); });
document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") stayAwake(); tick(); });
setInterval(tick, 1000);
show("arm");
start();

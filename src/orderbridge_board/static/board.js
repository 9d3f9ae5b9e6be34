// The board: fetches the whole state after each change, and shows it. It keeps no state of its own that the daemon lacks.

import { loud, paintBar, showProblems } from "./bar.js";
import { ask, el, install, language, learn, pairing, post, say, speak, version } from "./common.js";
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
const DOWN_MS = 3000; // how long a new page waits for its first answer
const HERE_MS = 5000;
const AGAIN_MS = 1000; // between two tries, so that a restarted daemon is found within 5 s
const RECONNECT_MS = 10000; // after which a silent connection is replaced
const SLEPT_MS = 2000;
const IDLE_MS = 30000; // without a touch for so long, the page may be reloaded

const $ = (id) => document.getElementById(id);
let state = null; // the last one
let begun = mark();
let heard = mark(); // when the cards were last known to match the tables
let read = null; // the daemon's time of that state, and the page's
let isBehind = false; // the state could not be fetched at the last try
let failure = ""; // the daemon's sentence about that
let stream = null;
let tried = mark(); // when the stream was last opened
let laterState = 0; // one timer each, so that tries do not accumulate overnight
let laterStream = 0;
let ticked = mark();
let view = "arm"; // arm, pair, orders, menu, recall
let touched = mark();
let isCut = false; // the connection is lost, and is being replaced
let hear = []; // the tablets whose sound is on
let reported = null; // whether this tablet can be heard, as last reported to the daemon
let reportedAt = mark();
let problems = []; // also those of a state that could not be read
let isOld = false; // the daemon has another version of the page
let refreshing = false;
let again = false;

// By both clocks: one may be set, and the other stops while the tablet sleeps.
function mark() { return { wall: Date.now(), run: performance.now() }; }
function since(then) { return Math.max(Date.now() - then.wall, performance.now() - then.run); }

// ---- the state, and the stream that reports its changes ------------------------------------------------------------

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
  isBehind = true; // until the state is painted
  if (status === 401) {
    state = null;
    isBehind = false;
    if (view !== "pair") show("pair"); // otherwise digits that are being typed stay
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
    if (state && Number(data) !== state.n) refresh(); // a `changed` event may have been lost
    tick();
  });
  stream.addEventListener("error", () => {
    stream.close();
    isCut = true; // shown at once; the cards turn grey only after STALE_MS
    clearTimeout(laterStream);
    laterStream = setTimeout(() => { if (view !== "pair") connect(); }, AGAIN_MS);
    refresh();
  });
}

// ---- once a second: ages, sound, connection ------------------------------------------------------------------------

const now = () => read.now + performance.now() - read.run; // the daemon's time
const shown = () => (view === "pair"
  ? { state: null, view, problems: [], failure: "", failedTaps: [], isLost: false, isCut: false, isAudible: true }
  : { state, view, problems, failure, failedTaps: failedTaps(), isLost: isStale(), isCut, isAudible: isAudible() });
const isDown = () => view !== "pair" && !state && (isCut || (!isBehind && since(begun) > DOWN_MS)); // no answer yet since the page was opened
const isStale = () => isDown() || since(heard) > STALE_MS;
const isAudible = () => isOn() && document.visibilityState === "visible";

function tick() {
  const isLost = isStale();
  recover(isLost);
  document.body.classList.toggle("stale", isLost);
  $("down").hidden = !isDown();
  if (state) for (const card of cards.values()) paintAge(card, now());
  const isPaired = view !== "pair";
  sound(!isPaired ? [] : isLost ? ["line"] : state?.sounds ?? []);
  whenLifted("bar", () => steady(".card[data-key]", paintTop));
  reportPresence();
  closeGaps(since(touched), state);
}

function paintTop() {
  paintBar(shown());
  paintHead({ ...shown(), now: read && now(), heardMs: since(heard), hear });
  $("title").classList.toggle("unseen", view !== "pair");
}

// A cut network gives no error, so a silent connection is replaced. After a sleep or a clock change the state is fetched.
function recover(isLost) {
  const last = ticked;
  ticked = mark();
  if (view === "pair" || !stream) return;
  if (isLost && since(tried) > RECONNECT_MS) { connect(); refresh(); }
  if (Math.abs(ticked.wall - last.wall - (ticked.run - last.run)) > SLEPT_MS) refresh();
  if (isOld && !isLost && !dialog() && since(touched) > IDLE_MS) location.reload();
}

async function reportPresence() {
  const audible = isAudible() && view !== "arm";
  if (view === "pair" || (audible === reported && since(reportedAt) < HERE_MS)) return;
  reported = audible;
  reportedAt = mark();
  const { status, data } = await post("here", { audible });
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

// Go to the waiting order from any page, or to the page where a closed restaurant is opened.
function onCall({ target }) {
  const call = target.closest("[data-call]");
  if (!call) return;
  const key = call.dataset.call;
  if (!key) return void show("menu");
  if (view !== "orders") show("orders");
  cards.get(key)?.element.scrollIntoView(); // to its head, even if the card is higher than the screen
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

// Keep the screen on if the browser allows it; otherwise a sentence below the cards says so.
async function stayAwake() {
  let isKept = false;
  try { isKept = Boolean(await navigator.wakeLock?.request("screen")); } catch { /* without HTTPS, or with a low battery */ }
  if ($("awake")) $("awake").hidden = isKept;
}

async function start() {
  begun = mark();
  await refresh();
  if (view === "pair") return;
  connect();
  if (view === "arm" && (await arm())) show("orders"); // this browser needs no touch for sound
}

const page = { state: () => state, repaint, refresh, repaintMenu, repaintRecall };

await learn();
install();
watchFingers();
$("bar").addEventListener("click", onBar);
$("calls").addEventListener("click", onCall);
$("mute").addEventListener("click", () => post("seen", { subjects: loud(shown()) }));
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

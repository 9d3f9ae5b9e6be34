// The board: takes the whole state after each change, and shows it. It remembers nothing that the daemon does not know.

import { ask, clock, el, has, language, learn, money, pairing, say, speak, tell } from "./common.js";
import { arm, isOn, LOUDEST_FIRST, sound } from "./sound.js";

const STALE_MS = 25000;
const HERE_MS = 5000;
const AGAIN_MS = 2000;
const REST_MS = 3000; // for so long nobody has touched anything: gaps may close
const AGES_S = [30, 90, 180, 300];
const KEYS = 9;

const $ = (id) => document.getElementById(id);
let state = null; // the last one
let heard = Date.now(); // when the stream last said something
let ahead = 0; // of the daemon's clock before ours, in ms
let stream = null;
let view = "arm"; // arm, pair, orders, menu
let touched = 0;
let isPressed = false; // a finger is on the glass
let told = null; // what was last told of our being heard
let toldAt = 0;
let links = []; // the problems that break the chain
let refreshing = false;
let again = false;
const cards = new Map(); // by key: the element and what it shows
const announced = new Set();
const sending = new Map(); // by key: the sentence of a tap that is not answered yet

// ---- the state, and the stream that says when to take it -----------------------------------------------------------

async function refresh() {
  if (refreshing) { again = true; return; }
  refreshing = true;
  do {
    again = false;
    const { status, data } = await ask("state");
    if (status === 401) { show("pair"); break; }
    if (status === 200) {
      ahead = Date.parse(data.now) - Date.now();
      state = data;
      links = data.problems.filter((one) => one.link);
      heard = Date.now();
      paint();
      if (view === "menu") await paintMenu();
    } else if (status === 503 && data.problems) {
      links = data.problems.filter((one) => one.link);
      again = false;
      setTimeout(refresh, AGAIN_MS);
    } else {
      setTimeout(refresh, AGAIN_MS);
    }
  } while (again);
  refreshing = false;
  tick();
}

function connect() {
  stream?.close();
  stream = new EventSource("/board/stream");
  stream.addEventListener("changed", () => { heard = Date.now(); refresh(); });
  stream.addEventListener("beat", () => { heard = Date.now(); tick(); });
  stream.addEventListener("error", () => {
    stream.close();
    setTimeout(() => { if (view !== "pair") connect(); }, AGAIN_MS);
    refresh();
  });
}

// ---- once a second: ages, sound, what is broken --------------------------------------------------------------------

const isStale = () => Date.now() - heard > STALE_MS;
const isAudible = () => isOn() && document.visibilityState === "visible";

function tick() {
  const isLost = isStale();
  document.body.classList.toggle("stale", isLost);
  for (const card of cards.values()) paintAge(card);
  if (view !== "pair") {
    sound(isLost ? ["line"] : state?.sounds ?? []);
    paintBar(isLost);
  }
  sayHere();
  closeGaps();
}

async function sayHere() {
  const audible = isAudible() && view !== "arm";
  if (view === "pair" || (audible === told && Date.now() - toldAt < HERE_MS)) return;
  told = audible;
  toldAt = Date.now();
  await tell("here", { audible });
}

function paintBar(isLost) {
  const bar = $("bar");
  const broken = links.find((one) => one.sounds) ?? links[0];
  let kind = "";
  let text = "";
  if (isLost) {
    kind = "red";
    text = say("link_daemon_tablet") + (state ? ` ${say("bar_stale", { time: clock(state.now, state.timezone) })}` : "");
  } else if (!isAudible() && view !== "arm") {
    kind = "red quiet";
    text = say("bar_quiet");
  } else if (broken) {
    kind = broken.severity === "severe" ? "red" : "yellow";
    text = `${say(`link_${broken.link}`)} ${broken.cause} ${broken.remedy}`;
    if (broken.sounds) text += ` [${say("silence")}]`;
  } else if (state?.sounds.includes("cancelled")) {
    kind = "red loud";
    text = say("stop");
  } else if (state && view !== "arm") {
    text = state.problems.map((one) => one.cause).join(" ");
    kind = text ? "yellow" : "";
  }
  if (bar.textContent !== text) bar.textContent = text;
  bar.className = kind;
  bar.hidden = !text;
}

function onBar() {
  if (!isOn()) { arm().then(tick); return; }
  const loud = links.filter((one) => one.sounds).map((one) => one.silence);
  if (loud.length) tell("seen", { subjects: loud });
}

// ---- cards ---------------------------------------------------------------------------------------------------------

function paint() {
  if (view !== "orders") return;
  const grid = $("cards");
  if (!grid) return;
  const there = new Set();
  for (const order of state.orders) {
    there.add(order.key);
    if (order.stop && $("dialog")?.dataset.key === order.key) closeDialog(); // what was private of it goes, too
    const shown = JSON.stringify(order) + language() + state.role + (sending.get(order.key) ?? "");
    const known = cards.get(order.key);
    if (known?.shown === shown) continue;
    const made = cardOf(order);
    if (known) {
      const hadFocus = known.element.contains(document.activeElement) ? document.activeElement.dataset.do : null;
      known.element.replaceWith(made);
      if (hadFocus !== null) (made.querySelector(`[data-do="${hadFocus}"]`) ?? made).focus();
    } else {
      grid.append(made);
    }
    cards.set(order.key, { element: made, order, shown });
    paintAge(cards.get(order.key));
    announce(order);
  }
  for (const [key, card] of cards) {
    if (there.has(key)) continue;
    card.element.style.height = `${card.element.getBoundingClientRect().height}px`; // an empty place of its size: nothing moves under a finger
    card.element.classList.add("gone");
    card.element.replaceChildren();
    card.element.removeAttribute("tabindex");
    cards.delete(key);
    for (const kind of ["new", "stop"]) announced.delete(kind + key);
    sending.delete(key);
    if ($("dialog")?.dataset.key === key) closeDialog();
  }
  number();
  closeGaps();
  $("empty").hidden = state.orders.length > 0;
}

function closeGaps() {
  const grid = $("cards");
  if (!grid || isPressed || Date.now() - touched < REST_MS) return;
  const gone = grid.querySelectorAll(".gone");
  if (gone.length) {
    gone.forEach((one) => one.remove());
    number();
  }
}

function number() {
  document.querySelectorAll(".card:not(.gone)").forEach((card, place) => {
    const slot = card.querySelector(".slot");
    slot.textContent = place < KEYS ? String(place + 1) : "";
  });
}

function announce(order) {
  const kind = order.stop ? "stop" : order.sounds.includes("new") ? "new" : "";
  const mark = kind + order.key;
  if (!kind || announced.has(mark)) return;
  announced.add(mark);
  const key = kind === "stop" ? "announce_stop" : "announce";
  const alert = el("p", { role: "alert" }, say(key, { number: order.number ?? "?" }));
  $("alerts").append(alert);
  while ($("alerts").children.length > 20) $("alerts").firstChild.remove();
  setTimeout(() => alert.remove(), 10000);
}

function cardOf(order) {
  const facts = [
    order.restaurant,
    courier(order),
    order.scheduled ? say("scheduled", { time: order.scheduled }) : null,
  ].filter(Boolean).join(" · ");
  return el(
    "article", { class: `card ${order.stop ? "stop" : order.status}`, "data-key": order.key, tabindex: "0", "aria-labelledby": `n-${order.key}` },
    el("header", {}, el("span", { class: "slot", "aria-hidden": "true" }), el("h2", { id: `n-${order.key}` }, `#${order.number ?? "?"}`), el("p", { class: "age" })),
    order.stop ? el("p", { class: "halt" }, say("stop")) : null,
    el("p", { class: "facts" }, facts),
    el("ul", { class: "items" }, order.items.map(itemOf)),
    order.note ? el("p", { class: "note" }, order.note) : null,
    order.problems.map((code) => el("p", { class: "problem" }, problemOf(code))),
    el("p", { class: `money ${order.money}` }, moneyOf(order)),
    verdictOf(order),
    el("div", { class: "buttons" }, buttonsOf(order)),
  );
}

function itemOf(item) {
  const options = item.options.map((one) => el("li", {}, [one.group, one.name].filter(Boolean).join(": ")));
  return el(
    "li", {},
    el("span", { class: "what" }, `${item.quantity ?? "?"} × ${item.name ?? "?"}`),
    options.length ? el("ul", { class: "options" }, options) : null,
    item.note ? el("strong", { class: "itemnote" }, item.note) : null,
  );
}

function courier(order) {
  if (order.shipping === "pickup" || order.courier === "come_get") return say("courier_come_get");
  return say(order.courier === "restaurant" ? "courier_restaurant" : "courier_platform");
}

function problemOf(code) {
  const name = `problem_${code.split(":")[0]}`;
  return has(name) ? say(name) : say("problem", { code });
}

function moneyOf(order) {
  const amount = money(order.money === "ask" ? order.total : order.amount);
  const tip = order.tip && Number(order.tip) > 0 ? ` · ${say("tip", { amount: money(order.tip) })}` : "";
  return say(`money_${order.money}`, { amount }) + tip;
}

function verdictOf(order) {
  const tapped = sending.get(order.key);
  if (tapped) return el("p", { class: "verdict waits" }, tapped);
  const row = order.row;
  if (!row) return el("p", { class: "verdict" }); // its place is kept: a tap on one card moves no other
  const what = say(`do_${row.action}`) + (row.minutes ? ` (${say("minutes", { minutes: row.minutes })})` : "");
  if (row.waits) return el("p", { class: "verdict waits" }, say(row.text ? "waiting_retry" : "waiting", { what }), row.text ? ` ${row.text}` : "");
  const text = row.state === "done" ? "" : ` ${row.text ?? ""}`;
  return el("p", { class: `verdict ${row.state}` }, say(`verdict_${row.state}`, { what }), text);
}

function buttonsOf(order) {
  if (order.stop) return [el("button", { type: "button", class: "big", "data-do": "stop" }, say("stop_touch"))];
  const tapped = sending.has(order.key);
  const buttons = [];
  if (state.role === "act") {
    for (const one of order.actions) {
      buttons.push(el("button", { type: "button", class: `big ${one.action}`, "data-do": one.action, disabled: tapped }, say(`do_${one.action}`)));
    }
    if (order.row?.back) buttons.push(el("button", { type: "button", class: "big", "data-do": "back", disabled: tapped }, say("take_back")));
    const isNew = order.sounds.includes("new") && !order.actions.some((one) => one.action === "accept");
    if (isNew || order.changed || order.sounds.includes("overdue")) buttons.push(el("button", { type: "button", "data-do": "seen" }, say("seen")));
  }
  if (state.customers) buttons.push(el("button", { type: "button", "data-do": "customer" }, say("customer")));
  return buttons;
}

function paintAge({ element, order }) {
  const age = element.querySelector(".age");
  if (!age || !state) return;
  const now = Date.now() + ahead;
  let text = say(`status_${order.status}`);
  let step = "";
  if (order.stop) {
    step = "a3";
  } else if (order.waits) {
    const seconds = Math.max(0, Math.floor((now - Date.parse(order.received)) / 1000));
    const place = AGES_S.filter((limit) => seconds >= limit).length;
    text = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} ${say(`age_${place}`)}`;
    step = `a${place}`;
  } else if (order.due) {
    const minutes = Math.ceil((Date.parse(order.due) - now) / 60000);
    text = minutes > 0 ? say("due_in", { minutes }) : say("overdue", { minutes: 1 - minutes });
    step = minutes > 0 ? "" : "a3";
  }
  if (age.textContent !== text) age.textContent = text;
  if (element.dataset.step !== step) element.dataset.step = step;
}

// ---- taps ----------------------------------------------------------------------------------------------------------

function onTap(event) {
  touched = Date.now();
  const button = event.target.closest("button[data-do]");
  if (!button || button.disabled) return;
  const card = button.closest(".card, .row");
  const what = button.dataset.do;
  if (what === "close") return void closeDialog();
  if (button.closest("#dialog")) return void choose(button);
  if (card?.classList.contains("row")) return void toggle(card, what);
  const order = cards.get(card?.dataset.key)?.order;
  if (order) act(order, what);
}

function act(order, what) {
  if (what === "accept") return openDialog(order, say("how_long"), state.minutes.map((minutes) => ({ text: say("minutes", { minutes }), values: { action: "accept", preparing_time: minutes } })));
  if (what === "cancel") return openDialog(order, say("why_cancel"), state.reasons.map((one) => ({ text: one.reason, values: { action: "cancel", reason_id: one.id } })));
  if (what === "customer") return showCustomer(order);
  if (what === "back") return send(order, "back", { id: order.row.id }, say("take_back"));
  if (what === "stop" || what === "seen") {
    const subjects = what === "stop" ? [`cancelled:${order.key}`] : order.sounds.includes("overdue") ? [`overdue:${order.key}`] : [];
    return send(order, "seen", { subjects, payment_key: order.key, revision: order.revision }, say("seen"));
  }
  return send(order, "act", { action: what, ...named(order, what) }, say("waiting", { what: say(`do_${what}`) }));
}

// What the person who taps has seen: a row that came to its end meanwhile makes the same tap no second one.
const named = (order, action) => ({
  payment_key: order.key,
  revision: order.revision,
  tries: order.actions.find((one) => one.action === action)?.tries ?? 0,
});

async function send(order, name, values, shown) {
  sending.set(order.key, shown);
  paint();
  const { status, data } = await tell(name, values);
  sending.delete(order.key);
  if (status !== 200) sending.set(order.key, data.text ?? say("not_sent"));
  await refresh();
  paint();
  if (status !== 200) setTimeout(() => { sending.delete(order.key); paint(); }, 4000);
}

function openDialog(order, title, choices) {
  closeDialog();
  const buttons = choices.map((one, place) => el("button", { type: "button", class: "big", "data-do": "choose", "data-values": JSON.stringify({ ...one.values, ...named(order, one.values.action) }), autofocus: place === 3 || (place === 0 && choices.length < 4) }, one.text));
  open(order, title, el("div", { class: "choices" }, buttons));
}

function open(order, title, contents) {
  const dialog = el("dialog", { id: "dialog", "data-key": order.key, "aria-labelledby": "dialog-title" },
    el("h2", { id: "dialog-title" }, `#${order.number ?? "?"}: ${title}`), contents,
    el("button", { type: "button", class: "big quiet", "data-do": "close" }, say("never_mind")));
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
}

function closeDialog() {
  const dialog = $("dialog");
  dialog?.close();
  dialog?.remove();
}

function choose(button) {
  const order = cards.get($("dialog").dataset.key)?.order;
  const values = JSON.parse(button.dataset.values);
  closeDialog();
  if (order) send(order, "act", values, say("waiting", { what: say(`do_${values.action}`) }));
}

async function showCustomer(order) {
  const { status, data } = await ask("customer", { key: order.key });
  if (status !== 200) { sending.set(order.key, data.text ?? say("not_sent")); paint(); return; }
  const place = [data.address, data.building_no, data.apartment_no, data.neighborhood_name, data.district_name, data.city_name].filter(Boolean).join(", ");
  const lines = [data.customer_name, data.customer_phone, place, data.address_description].filter(Boolean);
  open(order, say("customer"), el("div", { class: "customer" }, lines.map((line) => el("p", {}, line))));
}

function onKey(event) {
  if (event.repeat && event.key === "Enter") return void event.preventDefault(); // a key that is held down is one tap
  if (event.target.closest("input, dialog")) return;
  const place = Number(event.key);
  const listed = [...document.querySelectorAll(".card:not(.gone)")];
  if (place >= 1 && place <= KEYS && listed[place - 1]) {
    listed[place - 1].focus();
    touched = Date.now();
  } else if (event.key === "Enter" && event.target.classList.contains("card")) {
    event.preventDefault(); // else it chooses in the dialog that this opens, too
    event.target.querySelector("button[data-do]:not([disabled])")?.click();
  }
}

// ---- foods and restaurants -----------------------------------------------------------------------------------------

async function paintMenu() {
  const { status, data } = await ask("menu");
  if (status !== 200 || view !== "menu") return;
  const acts = state?.role === "act";
  const shop = (one) => {
    const known = { Open: "open", Closed: "closed" }[one.status] ?? "unknown";
    const what = one.status === "Closed" ? "open_restaurant" : "close_restaurant";
    return rowOf(one, one.name ?? one.id, say(known), acts ? [what] : [], { restaurant_id: one.id });
  };
  const food = (one) => rowOf(one, one.name ?? `#${one.food_id}`, say(one.off ? "off" : "on"), acts ? [one.off ? "activate_food" : "deactivate_food"] : [], { food_id: one.food_id, account: one.account });
  $("main").replaceChildren(
    el("section", { class: "list" }, el("h2", {}, say("restaurants")), el("p", {}, say("sure_close")), data.restaurants.map(shop)),
    el("section", { class: "list" }, el("h2", {}, say("foods")), el("p", {}, say("foods_why")), data.foods.map(food)),
  );
}

function rowOf(one, name, now, actions, subject) {
  const waits = one.row?.waits;
  const text = one.row && one.row.state !== "done" ? say(waits ? "waiting" : `verdict_${one.row.state}`, { what: say(`do_${one.row.action}`) }) + ` ${one.row.text ?? ""}` : "";
  return el(
    "div", { class: "row", "data-subject": JSON.stringify({ ...subject, tries: one.tries }) },
    el("span", { class: "name" }, name), el("span", { class: "now" }, now), el("span", { class: "verdict" }, text),
    actions.map((action) => el("button", { type: "button", class: "big", "data-do": action, disabled: waits }, say(`do_${action}`))),
  );
}

async function toggle(row, action) {
  row.querySelectorAll("button").forEach((one) => { one.disabled = true; });
  const { status, data } = await tell("act", { action, ...JSON.parse(row.dataset.subject) });
  row.querySelector(".verdict").textContent = status === 200 ? say("waiting", { what: say(`do_${action}`) }) : data.text ?? say("not_sent");
  if (status === 200) await paintMenu();
}

// ---- what is shown -------------------------------------------------------------------------------------------------

function show(what) {
  view = what;
  closeDialog();
  cards.clear();
  const main = $("main");
  $("menu").hidden = what === "arm" || what === "pair";
  $("menu").textContent = say(what === "menu" ? "orders" : "menu");
  $("language").textContent = say("other_language");
  $("title").textContent = say("title");
  document.title = say("title");
  if (what === "pair") {
    main.replaceChildren(pairing(() => { show("arm"); start(); }));
  } else if (what === "arm") {
    const big = el("button", { type: "button", id: "arm" }, el("span", { class: "huge" }, say("arm")), el("span", {}, say("arm_why")),
      "wakeLock" in navigator ? null : el("small", {}, say("no_wake_lock")));
    big.addEventListener("click", async () => { await arm(); show("orders"); });
    main.replaceChildren(big);
  } else if (what === "menu") {
    main.replaceChildren();
    paintMenu();
  } else {
    main.replaceChildren(el("p", { id: "empty", hidden: true }, say("empty")), el("div", { id: "cards" }));
    if (state) paint();
    stayAwake();
  }
  tick();
}

async function stayAwake() {
  try { await navigator.wakeLock?.request("screen"); } catch { /* the tablet's own settings keep it on, as the first screen says */ }
}

async function start() {
  await refresh();
  if (view === "pair") return;
  connect();
  if (view === "arm" && (await arm())) show("orders"); // no touch is needed here
}

await learn();
$("bar").addEventListener("click", onBar);
$("menu").addEventListener("click", () => show(view === "menu" ? "orders" : "menu"));
$("language").addEventListener("click", () => { speak(language() === "tr" ? "en" : "tr"); show(view); refresh(); });
document.addEventListener("click", onTap);
document.addEventListener("pointerdown", () => { touched = Date.now(); isPressed = true; });
for (const over of ["pointerup", "pointercancel"]) document.addEventListener(over, () => { touched = Date.now(); isPressed = false; });
document.addEventListener("keydown", onKey);
document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") stayAwake(); tick(); });
setInterval(tick, 1000);
show("arm");
start();

// The three lanes: new, cooking and on the way, each with the most urgent order first.

import { el, say } from "./common.js";

const LANES = ["new", "cook", "way"];
const COLUMN_REM = 16.6; // the smallest width of a card
const GAP = 12;
const ROW = 4; // px, as in board.css
const FEW = 4; // with fewer columns the lane `way` is below the others

let split = ""; // the numbers of columns and the non-empty lanes, when they were last divided

export function makeLanes() {
  split = "";
  return el("div", { id: "cards" }, LANES.map((name) => el(
    "section", { class: `lane ${name}`, "aria-labelledby": `lane-${name}`, hidden: true },
    el("h2", { id: `lane-${name}` }, say(`lane_${name}`), " ", el("b", { class: "count" }, "0")), el("div", { class: "stack" }),
  )));
}

const laneOf = (name) => /** @type {HTMLElement} */ (document.querySelector(`.lane.${name}`));

// The most urgent first: cancelled orders, then by the time to leave, then by arrival.
export function inOrder(orders) {
  const rank = (one) => (one.stop ? 0 : one.due ? Date.parse(one.due) : Infinity);
  return orders.map((one, place) => [rank(one), place, one]).sort((a, b) => (a[0] === b[0] ? a[1] - b[1] : a[0] - b[0])).map((one) => one[2]);
}

// Put the cards into their lanes. `cards`: pairs of an order and its element, sorted. Gaps stay in place.
export function place(cards) {
  for (const name of LANES) {
    const lane = laneOf(name);
    const stack = lane.querySelector(".stack");
    const mine = cards.filter(([order]) => order.lane === name);
    let at = stack.firstElementChild;
    for (const [, element] of mine) {
      while (at?.classList.contains("gone")) at = at.nextElementSibling;
      if (at === element) at = at.nextElementSibling;
      else stack.insertBefore(element, at);
    }
    const count = lane.querySelector(".count");
    if (count.textContent !== String(mine.length)) count.textContent = String(mine.length);
    lane.hidden = !stack.children.length;
  }
}

// Set the height of each card and gap in grid rows.
export function pack() {
  const cards = [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("#cards .card"))];
  const rows = cards.map((one) => `span ${Math.ceil((one.offsetHeight + GAP) / ROW)}`);
  cards.forEach((one, place) => { if (one.style.gridRowEnd !== rows[place]) one.style.gridRowEnd = rows[place]; });
}

// Divide the columns among the lanes. Unless `isCalm`, only a lane that became empty or non-empty changes the division.
export function share(isCalm) {
  const grid = document.getElementById("cards");
  if (!grid) return false;
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const all = Math.max(1, Math.floor((grid.clientWidth + GAP) / (COLUMN_REM * rem + GAP)));
  const [fresh, cooking, away] = LANES.map((name) => laneOf(name).querySelectorAll(".card").length);
  const kind = [all, fresh > 0, cooking > 0, away > 0].join();
  if (!isCalm && split === kind) return false;
  const beside = away && all >= FEW ? 1 : 0;
  const rest = all - beside;
  const part = Math.round((rest * 2 * fresh) / (2 * fresh + cooking || 1)); // new orders count twice: their customers wait for an answer
  const first = fresh && cooking && rest > 1 ? Math.min(rest - 1, Math.max(1, part)) : rest;
  const second = rest === 1 || !fresh ? rest : rest - first;
  const wanted = { new: first, cook: second, way: beside || all };
  const isNew = split !== kind || LANES.some((name) => laneOf(name).dataset.columns !== String(wanted[name]));
  split = kind;
  if (!isNew) return false;
  grid.style.setProperty("--columns", String(all));
  for (const name of LANES) {
    laneOf(name).dataset.columns = wanted[name];
    laneOf(name).style.setProperty("--columns", wanted[name]);
  }
  return true;
}

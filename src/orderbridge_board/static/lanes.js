// The three lanes: what is new, what is cooked, what is on its way. What is most urgent stands first in each.

import { el, say } from "./common.js";

const LANES = ["new", "cook", "way"];
const COLUMN_REM = 16.6; // so narrow a card may be
const GAP = 12;
const ROW = 4; // px, as in board.css
const FEW = 4; // with fewer columns what is on its way stands below the others

let split = ""; // how the columns are shared, and what for

export function makeLanes() {
  split = "";
  return el("div", { id: "cards" }, LANES.map((name) => el(
    "section", { class: `lane ${name}`, "aria-labelledby": `lane-${name}`, hidden: true },
    el("h2", { id: `lane-${name}` }, say(`lane_${name}`), " ", el("b", { class: "count" }, "0")), el("div", { class: "stack" }),
  )));
}

const laneOf = (name) => /** @type {HTMLElement} */ (document.querySelector(`.lane.${name}`));

// The most urgent first: stop, then by when it should leave, then by when it came.
export function inOrder(orders) {
  const rank = (one) => (one.stop ? 0 : one.due ? Date.parse(one.due) : Infinity);
  return orders.map((one, place) => [rank(one), place, one]).sort((a, b) => (a[0] === b[0] ? a[1] - b[1] : a[0] - b[0])).map((one) => one[2]);
}

// `cards`: pairs of an order and its element, in their order. Gaps stay where they are.
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

// Each card and each gap is as many rows high as it needs.
export function pack() {
  const cards = [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("#cards .card"))];
  const rows = cards.map((one) => `span ${Math.ceil((one.offsetHeight + GAP) / ROW)}`);
  cards.forEach((one, place) => { if (one.style.gridRowEnd !== rows[place]) one.style.gridRowEnd = rows[place]; });
}

// How many columns each lane has. While hands are at work only what is new or empty changes that.
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
  const part = Math.round((rest * 2 * fresh) / (2 * fresh + cooking || 1)); // its customers wait for an answer
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

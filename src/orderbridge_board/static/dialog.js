// Windows over the page. What has just come under a finger takes no touch and no key for a moment: a finger that
// trembles, or taps twice, means what was there before.

import { el, say } from "./common.js";
import { READY_MS } from "./steady.js";

let resting = 0;

export const dialog = () => /** @type {HTMLDialogElement | null} */ (document.getElementById("dialog"));

// These come to life when the moment is over; `then` after that.
function unready(buttons, then) {
  for (const one of buttons) one.disabled = true;
  setTimeout(() => {
    for (const one of buttons) one.disabled = false;
    then();
  }, READY_MS);
}

// `more`: buttons beside the one that closes it.
export function open(key, title, contents, back, more = []) {
  closeDialog();
  const made = el(
    "dialog", { id: "dialog", "data-key": key, "aria-labelledby": "dialog-title" },
    el("h2", { id: "dialog-title" }, title), contents,
    el("div", { class: "back" }, el("button", { type: "button", class: "big", "data-do": "close" }, say(back)), more),
  );
  document.body.append(made);
  made.addEventListener("close", () => { made.remove(); rest(); });
  // Before it is shown: what can take no key must not have the focus either.
  unready(made.querySelectorAll("button:not([data-do=confirm])"), () => (made.querySelector("[autofocus]") ?? made.querySelector("[data-do=close]")).focus());
  made.showModal();
}

// A touch on one of the choices is all: they are {text, values}, in the order in which they are shown.
export function choose(key, title, choices, usual, kind) {
  open(key, title, chosenFrom(choices, usual, kind), "never_mind");
}

// A choice that is only made by a second touch, on a button that lies elsewhere and says what will be done.
export function chooseAndConfirm(key, title, choices, first) {
  open(key, title, chosenFrom(choices, 0, "confirmed"), "never_mind", [confirming(say(first))]);
}

function chosenFrom(choices, usual, kind) {
  const buttons = choices.map((one, place) => el(
    "button",
    { type: "button", class: "big", "data-do": "choose", "data-values": JSON.stringify(one.values), "data-confirm": one.confirm, autofocus: place === usual },
    one.text,
  ));
  return el("div", { class: `choices ${kind}` }, buttons);
}

const confirming = (text) => el("button", { type: "button", class: "big cancel", "data-do": "confirm", disabled: true }, text);

function ready(button, text, values) {
  button.textContent = text;
  button.dataset.values = JSON.stringify(values);
  clearTimeout(Number(button.dataset.timer));
  button.disabled = true;
  button.dataset.timer = setTimeout(() => { button.disabled = false; }, READY_MS);
}

// A touch on a choice: its values when that was all, null when it is still to be confirmed.
export function chosen(button) {
  const values = JSON.parse(button.dataset.values);
  if (!button.dataset.confirm) return values;
  for (const one of dialog().querySelectorAll("[data-do=choose]")) one.setAttribute("aria-pressed", String(one === button));
  ready(dialog().querySelector("[data-do=confirm]"), button.dataset.confirm, values);
  return null;
}

export function closeDialog() {
  const made = dialog();
  if (!made) return;
  made.close();
  made.remove();
  rest();
}

// The page under a window that has closed.
function rest() {
  document.body.classList.add("resting");
  clearTimeout(resting);
  resting = setTimeout(() => document.body.classList.remove("resting"), READY_MS);
}

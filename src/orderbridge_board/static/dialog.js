// Windows over the page. A button that has just appeared ignores touches and keys for a moment, because a second tap of a
// trembling finger was meant for what was there before.

import { el, say } from "./common.js";
import { READY_MS } from "./steady.js";

let resting = 0;

export const dialog = () => /** @type {HTMLDialogElement | null} */ (document.getElementById("dialog"));

// Disable these buttons for that moment, then call `then`.
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
  // Before the window is shown, because a disabled button must not get the focus.
  unready(made.querySelectorAll("button:not([data-do=confirm])"), () => (made.querySelector("[autofocus]") ?? made.querySelector("[data-do=close]")).focus());
  made.showModal();
}

// A window in which one touch on a choice is enough. `choices`: {text, values} in their order.
export function choose(key, title, choices, usual, kind) {
  open(key, title, chosenFrom(choices, usual, kind), "never_mind");
}

// A window in which a second touch confirms the choice, on a button in another place that says what will be done.
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

// The values of a touched choice; null if it must still be confirmed.
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

// Let the page ignore touches for a moment after a window has closed.
function rest() {
  document.body.classList.add("resting");
  clearTimeout(resting);
  resting = setTimeout(() => document.body.classList.remove("resting"), READY_MS);
}

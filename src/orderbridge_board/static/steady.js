// Nothing changes under a finger: changes wait until it is lifted, and a moved button ignores touches for a moment.

export const READY_MS = 600; // by then the person has seen the new button
const LIFT_MS = 150; // the click arrives after the finger was lifted
const LONGEST_MS = 10000; // a hand resting on the screen delays changes no longer than this
const MOVED_PX = 6;
const MOTION_MS = 200;

let downSince = null;
let touches = 0;
let refused = null; // a button that was touched too early
const waiting = new Map(); // by name: a change that waits for the finger

const isStill = matchMedia("(prefers-reduced-motion: reduce)");
export const isPressed = () => downSince !== null && performance.now() - downSince < LONGEST_MS;

// Apply a change now, or when the finger is lifted; of several with one name only the last.
export function whenLifted(name, change) {
  if (isPressed()) waiting.set(name, change);
  else change();
}

function lift() {
  downSince = null;
  const changes = [...waiting.values()];
  waiting.clear();
  for (const change of changes) change();
}

function release() {
  if (touches === 0 && downSince !== null) setTimeout(() => { if (touches === 0) lift(); }, LIFT_MS);
}

export function watchFingers() {
  addEventListener("pointerdown", (event) => {
    downSince = performance.now();
    const button = /** @type {HTMLElement} */ (event.target).closest?.("button");
    refused = button && !isReady(button) ? button.dataset.do ?? button.id : null;
  }, true);
  for (const name of ["pointerup", "pointercancel"]) addEventListener(name, release, true);
  for (const name of ["touchstart", "touchend", "touchcancel"]) {
    addEventListener(name, (/** @type {TouchEvent} */ event) => {
      touches = event.touches.length;
      release();
    }, { capture: true, passive: true });
  }
  addEventListener("click", () => { if (touches === 0) downSince = null; }, true); // its result is shown at once
  addEventListener("blur", () => { touches = 0; lift(); });
}

// ---- what may be touched ---------------------------------------------------------------------------------------------

export const isReady = (button) => !button.disabled && button.getAttribute("aria-disabled") !== "true";
// A person who presses a number key has read the number, so a moved button counts.
export const isReadyForKeys = (button) => !button.disabled && Number(button.dataset.born ?? 0) <= performance.now();

// A touch counts if the button was ready when the finger came down. event.detail is 0 for a key.
export function counts(event, button) {
  if (event.detail === 0) return isReadyForKeys(button);
  const isRefused = refused === (button.dataset.do ?? button.id);
  refused = null;
  return isReady(button) && !isRefused;
}

// Let buttons ignore touches for `left` ms, because they are new (`born`) or have `moved`.
export function rest(buttons, why, left = READY_MS) {
  const until = performance.now() + left;
  for (const one of buttons) {
    if (left <= 0 || Number(one.dataset[why] ?? 0) >= until) continue;
    one.dataset[why] = until;
    one.setAttribute("aria-disabled", "true");
    setTimeout(() => {
      if (Math.max(restLeft(one, "born"), restLeft(one, "moved")) < 1) one.removeAttribute("aria-disabled");
    }, left);
  }
}

export const restLeft = (button, why) => Number(button.dataset[why] ?? 0) - performance.now();

// ---- what moves ------------------------------------------------------------------------------------------------------

function placeOf(element) {
  const { x, y } = element.getBoundingClientRect();
  const buttons = element.querySelector(".buttons")?.getBoundingClientRect();
  return { x, y, buttonX: buttons?.x ?? x, buttonY: buttons?.y ?? y };
}

const placesOf = (all) => new Map([...document.querySelectorAll(all)].map((one) => [one.dataset.key, placeOf(one)]));

// Apply a change. What it moves or adds is animated, and ignores touches for a moment.
export function steady(all, change) {
  const before = placesOf(all);
  change();
  const after = [...document.querySelectorAll(all)].map((one) => [one, before.get(one.dataset.key), placeOf(one)]);
  for (const [one, was, is] of after) {
    const buttons = one.querySelectorAll("button");
    if (!was) {
      rest(buttons, "born");
      move(one, [{ opacity: 0, transform: "translateY(8px)" }, { opacity: 1, transform: "none" }]);
      continue;
    }
    const [x, y] = [was.x - is.x, was.y - is.y];
    if (Math.abs(was.buttonX - is.buttonX) + Math.abs(was.buttonY - is.buttonY) > MOVED_PX) rest(buttons, "moved");
    if (Math.abs(x) + Math.abs(y) > MOVED_PX) move(one, [{ transform: `translate(${x}px, ${y}px)` }, { transform: "none" }]);
  }
}

export function move(element, frames) {
  if (!isStill.matches) element.animate?.(frames, { duration: MOTION_MS, easing: "ease-out" });
}

// The head: the clock, the seconds since the daemon was heard, and a window with the state of connection and sound.

import { clock, el, say, setTheme, theme } from "./common.js";
import { open } from "./dialog.js";
import { arm, isOn, ring } from "./sound.js";

const $ = (id) => document.getElementById(id);
let shown = null;

// `alive`: state, now (ms), heardMs, isLost, isCut, isAudible, hear (names of the tablets whose sound is on).
export function paintHead(alive) {
  shown = alive;
  const { state, now, isLost, isCut } = alive;
  $("panel").hidden = !state;
  if (!state) return;
  set($("clock"), clock(now, state.timezone));
  const pulse = isLost ? say("dead") : isCut ? say("reconnecting") : say("live", { seconds: Math.round(alive.heardMs / 1000) });
  const shops = say(state.open.length || !state.closed.length ? "open" : "closed");
  if ($("pulse").textContent !== `${pulse} ${shops}`) $("pulse").replaceChildren(el("span", {}, pulse), " ", el("span", {}, shops));
  $("panel").className = isLost ? "lost" : isCut ? "cut" : "live";
  $("panel").setAttribute("aria-label", `${$("clock").textContent} ${shops}: ${say("panel")}`);
  if ($("empty") && !$("empty").hidden) set($("alive"), `${clock(now, state.timezone)} · ${heardText(alive)}`);
}

function set(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

const heardText = ({ isLost, isCut, heardMs }) => (isLost || isCut ? say("reconnecting") : say("heard", { seconds: Math.round(heardMs / 1000) }));

export function showPanel() {
  const { state, hear } = shown;
  const line = (name, ...what) => el("div", { class: "fact" }, el("dt", {}, say(name)), el("dd", {}, ...what));
  const choice = (name) => el("button", { type: "button", class: "big", "data-do": "theme", "data-theme": name, "aria-pressed": String(theme() === name) }, say(`theme_${name}`));
  const shops = [...state.closed.map((one) => `${say("closed")}: ${one}`), ...state.open.map((one) => `${say("open")}: ${one}`)];
  open("", say("panel"), el(
    "dl", { class: "panel" },
    line("line", heardText(shown)),
    line("restaurants", shops.length ? shops.map((one) => el("p", {}, one)) : say("unknown")),
    line("sound", el("button", { type: "button", class: "big", "data-do": "ring" }, say("ring")), " ", el("span", { id: "heard" }, say(isOn() ? "sound_on" : "sound_off"))),
    line("hear", hear.length ? hear.join(", ") : say("hear_none")),
    line("theme", el("div", { class: "choices" }, ["auto", "light", "dark"].map(choice))),
    line("technician", el("a", { href: "/status" }, say("status_link"))),
  ), "hide");
}

// Handle a touch in that window. False: the touch was not in it.
export function doOfHead(what, button) {
  if (what === "ring") arm().then((on) => { if (on) ring(); set($("heard"), say(on ? "sound_on" : "sound_off")); });
  else if (what === "theme") {
    setTheme(button.dataset.theme);
    for (const one of document.querySelectorAll("[data-do=theme]")) one.setAttribute("aria-pressed", String(one === button));
  } else return false;
  return true;
}

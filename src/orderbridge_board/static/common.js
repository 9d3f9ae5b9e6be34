// Shared by both pages: sentences, requests to the daemon, building elements, pairing.

let words = {};
let chosen = stored("language") === "en" ? "en" : "tr";

function stored(name) {
  try { return localStorage.getItem(`orderbridge.${name}`); } catch { return null; }
}

function keep(name, value) {
  try { localStorage.setItem(`orderbridge.${name}`, value); } catch { /* this browser stores nothing */ }
}

export const theme = () => stored("theme") ?? "auto";

// Light or dark; auto: as the tablet is configured.
export function setTheme(name) {
  keep("theme", name);
  paintTheme();
}

const isDark = matchMedia("(prefers-color-scheme: dark)");

function paintTheme() {
  const auto = isDark.matches ? "dark" : "light";
  document.documentElement.dataset.theme = theme() === "auto" ? auto : theme();
}

isDark.addEventListener?.("change", paintTheme);
paintTheme();

export const language = () => chosen;
export const locale = () => (chosen === "tr" ? "tr-TR" : "en-GB");

// A sentence with its values; for an unknown key, the key.
export function say(key, facts = {}) {
  const sentence = words[key]?.[chosen] ?? key;
  return sentence.replace(/\{(\w+)\}/g, (_, name) => facts[name] ?? "?");
}

export const has = (key) => key in words;

export function speak(to) {
  chosen = to;
  document.documentElement.lang = to;
  keep("language", to);
}

// The version of the page's files, which is the name of their folder.
export const version = new URL(".", import.meta.url).pathname.split("/").at(-2);

export async function learn() {
  words = await (await fetch(new URL("words.json", import.meta.url))).json();
  speak(chosen);
}

// The browser keeps the page, so that it opens while the daemon is down. This needs a service worker, and so HTTPS with a
// certificate that the tablet trusts.
export function install() {
  navigator.serviceWorker?.register("/worker.js").then((registration) => registration.update()).catch(() => {});
}

// The answer as {status, data}; status 0: no answer.
export async function ask(name, facts = {}) {
  const query = new URLSearchParams({ language: chosen, ...facts });
  return answered(fetch(`/board/${name}?${query}`, { signal: AbortSignal.timeout(10000) }));
}

export async function post(name, values) {
  return answered(fetch(`/board/${name}?language=${chosen}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(values),
    signal: AbortSignal.timeout(10000),
  }));
}

async function answered(request) {
  try {
    const response = await request;
    return { status: response.status, data: await response.json() };
  } catch {
    return { status: 0, data: {} };
  }
}

// An element. Strings become text nodes, so that no text of an order is read as HTML.
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  put(made, attributes, children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  put(made, attributes, children);
  return made;
}

function put(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
}

export function clock(moment, zone, withDate = false) {
  /** @type {Intl.DateTimeFormatOptions} */
  const form = { hour: "2-digit", minute: "2-digit", timeZone: zone };
  if (withDate) Object.assign(form, { day: "2-digit", month: "2-digit" });
  return new Intl.DateTimeFormat(locale(), form).format(new Date(moment));
}

// The date in that zone, as 2026-03-01.
export const day = (moment, zone) => new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short" }).format(new Date(moment));

export function money(amount) {
  if (amount === null) return "?";
  return new Intl.NumberFormat(locale(), { minimumFractionDigits: 2, maximumFractionDigits: 2 }).format(Number(amount));
}

// The form that turns eight digits into a paired tablet.
export function pairing(done) {
  const error = el("p", { class: "error", role: "alert" });
  const code = el("input", { id: "code", inputmode: "numeric", autocomplete: "one-time-code", maxlength: "12", required: true });
  const name = el("input", { id: "name", maxlength: "40", required: true, value: say("pair_name_default") });
  const form = el(
    "form", { class: "pairing" },
    el("h2", {}, say("pair_title")), el("p", {}, say("pair_how")),
    el("label", { for: "code" }, say("pair_code")), code,
    el("label", { for: "name" }, say("pair_name")), name,
    el("button", { type: "submit", class: "big" }, say("pair_do")), error,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { status, data } = await post("pair", { code: code.value, name: name.value });
    if (status === 200) done();
    else error.textContent = data.text ?? say("not_sent");
  });
  return form;
}

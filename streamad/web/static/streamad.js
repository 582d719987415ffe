// Live updates and keys. Every page works without this file: it only fetches the page again when something changed.
import { showTimes } from "./times.js";
import { dressCurves } from "./curves.js";

const live = () => document.getElementById("live");
const connection = document.getElementById("connection");
let source = null;
let timer = 0;
let due = 0;

export async function renew() {
  timer = 0;
  if (isTyping()) return later(2000);
  const how = { headers: { Accept: "text/html", "Streamad-Renewal": "1" } };
  const answer = await fetch(location.href, how).catch(() => null);
  if (!answer || answer.status >= 500) return later(3000); // the server is busy or gone
  if (answer.status === 401) return location.reload(); // the session has ended
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
  await new Promise(requestAnimationFrame); // reading and drawing a large page get a frame each
  const old = live();
  if (!fresh || !old) return;
  if (isTyping()) return later(2000);
  const opened = new Set([...old.querySelectorAll("details[open]")].map((each) => each.dataset.fold));
  const boxes = ".wide";
  const scrolled = [...old.querySelectorAll(boxes)].map((each) => [each.scrollLeft, each.scrollTop]);
  const told = new Set(kinds(old));
  const focus = path(document.activeElement, old);
  const fields = [...old.querySelectorAll("input:not([type=hidden]), select")];
  const written = fields.filter((each) => each.value !== (each.defaultValue ?? each.dataset.value));
  const ticked = [...old.querySelectorAll("input[type=checkbox][id]")].filter((each) => each.checked !== each.defaultChecked);
  const ticks = ticked.map((each) => [path(each, old), each.checked]);
  const values = written.map((each) => [path(each, old), each.value]);
  // What was read out once is not read out again: of the banner only what is new, and of an answer nothing.
  for (const said of fresh.querySelectorAll(".said")) said.removeAttribute("role");
  old.replaceWith(fresh);
  const news = kinds(fresh).filter((each) => !told.has(each));
  if (news.length) document.getElementById("news").textContent = news.join(". ");
  for (const [where, value] of values) {
    const field = where && fresh.querySelector(where);
    if (field) field.value = value;
  }
  for (const [where, is] of ticks) {
    const box = fresh.querySelector(where);
    if (box) box.checked = is;
  }
  for (const each of fresh.querySelectorAll("details")) each.open = opened.has(each.dataset.fold);
  fresh.querySelectorAll(boxes).forEach((each, i) => {
    if (scrolled[i]) [each.scrollLeft, each.scrollTop] = scrolled[i];
  });
  const again = focus && fresh.querySelector(focus);
  if (again) again.focus({ preventScroll: true });
  dress();
}

function kinds(page) {
  return [...page.querySelectorAll(".banner strong")].map((each) => each.textContent);
}

function isTyping() {
  const typed = document.activeElement;
  return Boolean(typed && typed.matches("input, textarea, select") && typed.value);
}

function path(element, within) {
  if (!element || !within.contains(element)) return null;
  if (element.id) return `#${CSS.escape(element.id)}`;
  const href = element.getAttribute("href");
  if (href) return `[href="${CSS.escape(href)}"]`;
  if (element.name) return `[name="${CSS.escape(element.name)}"]`;
  const label = element.getAttribute("aria-label"); // a box that scrolls
  return label ? `[aria-label="${CSS.escape(label)}"]` : null;
}

function later(ms) {
  if (timer && due <= Date.now() + ms) return;
  clearTimeout(timer);
  due = Date.now() + ms;
  timer = setTimeout(renew, ms);
}

function listen() {
  if (source || document.hidden || !live()) return;
  source = new EventSource(`/changes?after=${encodeURIComponent(live().dataset.change)}`);
  let isFull = false;
  source.addEventListener("full", (event) => {
    isFull = true;
    connection.textContent = event.data;
  });
  source.onmessage = (event) => {
    if (isNews(event.data, live().dataset.change)) later(300);
  };
  source.addEventListener("status", (event) => { // it comes first to each page that has a place
    connection.textContent = "";
    const shown = live().querySelector("[data-status]");
    if (shown && shown.dataset.status !== event.data) later(Number(shown.dataset.every));
  });
  source.onerror = () => {
    if (!isFull) connection.textContent = connection.dataset.lost;
    isFull = false;
    if (source.readyState === EventSource.CLOSED) {
      stop();
      setTimeout(() => { renew(); listen(); }, 5000); // the server is full or gone: ask now and then
    }
  };
}

// A mark is the id of the server's view, a point, and the number of the last change; a view begun anew counts from 0.
function isNews(told, shown) {
  const [[view, number], [ours, seen]] = [told.split("."), shown.split(".")];
  return view !== ours || Number(number) > Number(seen);
}

function stop() {
  if (source) source.close();
  source = null;
}

// Hidden tabs hold no connection: browsers allow six for each origin.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return stop();
  listen();
  later(50);
});
addEventListener("pagehide", stop);

// What this browser keeps: whether keys of one letter act, and which alerts were opened.
function kept(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`streamad.${name}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function keep(name, value) {
  try {
    localStorage.setItem(`streamad.${name}`, JSON.stringify(value));
  } catch { /* storage is full or forbidden: then it lasts as long as the page */ }
}

const MOST_SEEN = 2000;

function seen() {
  const known = kept("seen", []);
  return Array.isArray(known) ? known : [];
}

function noteOpened() {
  const opened = document.querySelector("[data-opened]")?.dataset.opened;
  if (opened) keep("seen", [...seen().filter((each) => each !== opened), opened].slice(-MOST_SEEN));
}

function showSeen() {
  const known = new Set(seen());
  for (const state of document.querySelectorAll("[data-new]")) {
    if (!known.has(state.dataset.new)) continue;
    state.textContent = connection.dataset.seen;
    state.classList.remove("new");
  }
}

// Keys: those that buttons and links name in data-key; J and K walk through the alerts of a list.
const keysSwitch = document.querySelector("#keys input");
let hasKeys = kept("keys", true) !== false;

function showKeys() {
  document.documentElement.classList.toggle("no-keys", !hasKeys);
  keysSwitch.checked = hasKeys;
}

keysSwitch.parentElement.hidden = false;
keysSwitch.addEventListener("change", () => {
  hasKeys = keysSwitch.checked;
  keep("keys", hasKeys);
  showKeys();
});

function walk(step) {
  const links = [...document.querySelectorAll("[data-walk] a[href^='/s/']")];
  if (!links.length) return false;
  const at = links.indexOf(document.activeElement);
  const next = at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + step, 0), links.length - 1);
  links[next].focus();
  return true;
}

document.addEventListener("keydown", (event) => {
  if (!hasKeys || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input:not([type=checkbox]), textarea, select")) return;
  const key = event.key.toLowerCase();
  const wanted = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (wanted) wanted.click();
  else if (!((key === "j" || key === "k") && walk(key === "j" ? 1 : -1))) return;
  event.preventDefault();
});

// Where the plant has no zone, dates of the form that filters are in the browser's, as all times shown are.
function zones() {
  if (document.documentElement.dataset.zone) return;
  const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const field of document.querySelectorAll("input[name=zone]")) field.value = zone;
  for (const name of document.querySelectorAll("[data-zone]:not(html)")) name.textContent = zone;
  const yesterday = new Intl.DateTimeFormat("sv").format(Date.now() - 86400000); // 2026-11-28
  for (const link of document.querySelectorAll("a[href^='/alerts?state=new&from=']")) {
    link.href = `/alerts?${new URLSearchParams({ state: "new", from: `${yesterday}T06:00`, zone })}`;
  }
}

function dress() {
  zones();
  dressCurves();
  showSeen();
  showTimes();
}

noteOpened();
showKeys();
dress();
listen();

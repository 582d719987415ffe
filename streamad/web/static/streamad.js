// Live updates and keys. Every page works without this file: it only fetches the page again when something changed.
const live = () => document.getElementById("live");
const connection = document.getElementById("connection");
let source = null;
let timer = 0;
let due = 0;

async function renew() {
  timer = 0;
  if (isTyping()) return later(2000);
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  if (!answer || answer.status >= 500) return later(3000); // the server is busy or gone
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
  await new Promise(requestAnimationFrame); // reading and drawing a large page get a frame each
  const old = live();
  if (!fresh || !old) return;
  if (isTyping()) return later(2000);
  const opened = [...old.querySelectorAll("details")].map((each) => each.open);
  const scrolled = [...old.querySelectorAll(".wide")].map((each) => [each.scrollLeft, each.scrollTop]);
  const focus = path(document.activeElement, old);
  const written = [...old.querySelectorAll("input:not([type=hidden])")].filter((each) => each.value !== each.defaultValue);
  const values = written.map((each) => [path(each, old), each.value]);
  old.replaceWith(fresh);
  for (const [where, value] of values) {
    const field = where && fresh.querySelector(where);
    if (field) field.value = value;
  }
  fresh.querySelectorAll("details").forEach((each, i) => { each.open = opened[i] ?? false; });
  fresh.querySelectorAll(".wide").forEach((each, i) => {
    if (scrolled[i]) [each.scrollLeft, each.scrollTop] = scrolled[i];
  });
  const again = focus && fresh.querySelector(focus);
  if (again) again.focus({ preventScroll: true });
  dress();
}

function isTyping() {
  const typed = document.activeElement;
  return Boolean(typed && typed.matches("input, textarea") && typed.value);
}

function path(element, within) {
  if (!element || !within.contains(element)) return null;
  if (element.id) return `#${CSS.escape(element.id)}`;
  const href = element.getAttribute("href");
  if (href) return `[href="${CSS.escape(href)}"]`;
  return element.name ? `[name="${CSS.escape(element.name)}"]` : null;
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
    if (!isFull) connection.textContent = "not connected, trying again";
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

// Keys: those that buttons and links name in data-key.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  const wanted = document.querySelector(`[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
  if (!wanted) return;
  event.preventDefault();
  wanted.click();
});

// The cursor over the small multiples: one line through all channels, moved by pointer or arrow keys.
function cursor(share) {
  for (const picture of document.querySelectorAll("svg.panel")) {
    const { width, height } = picture.viewBox.baseVal;
    let line = picture.querySelector(".cursor");
    if (!line) {
      line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      line.setAttribute("class", "cursor");
      line.setAttribute("y1", "8");
      line.setAttribute("y2", String(height - 26));
      picture.append(line);
    }
    const x = 56 + share * (width - 66);
    line.setAttribute("x1", String(x));
    line.setAttribute("x2", String(x));
  }
}

function dress() {
  for (const picture of document.querySelectorAll("svg.panel")) {
    picture.setAttribute("tabindex", "0");
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * picture.viewBox.baseVal.width;
      cursor(Math.min(1, Math.max(0, (x - 56) / (picture.viewBox.baseVal.width - 66))));
    });
    picture.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.preventDefault();
      const now = Number(picture.dataset.share ?? 0.5) + (event.key === "ArrowLeft" ? -0.02 : 0.02);
      picture.dataset.share = String(Math.min(1, Math.max(0, now)));
      cursor(Number(picture.dataset.share));
    });
  }
  for (const time of document.querySelectorAll("time")) time.title = new Date(time.dateTime).toLocaleString();
}

dress();
listen();

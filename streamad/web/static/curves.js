// Curves: a cursor through all channels, and a range of time to look into, by mouse, finger or keys. Without this file
// the links and the form beside the curves do the same.
import { renew } from "./streamad.js";

const SVG = "http://www.w3.org/2000/svg";
const LEAST = 0.02; // of the width: a shorter drag is a click
let drag = null; // where it began, and where it is

const pictures = () => document.querySelectorAll("[data-zoom] svg[tabindex]");

// Where in the plot of a picture the pointer is, from 0 at its left to 1 at its right edge.
function share(picture, event) {
  const { left, width } = picture.getBoundingClientRect();
  const { paddingLeft, paddingRight } = getComputedStyle(picture);
  const [before, after] = [parseFloat(paddingLeft), parseFloat(paddingRight)];
  return Math.min(1, Math.max(0, (event.clientX - left - before) / (width - before - after)));
}

function shape(picture, name, kind) {
  const found = picture.querySelector(`:scope > .${kind}`);
  if (found) return found;
  const made = document.createElementNS(SVG, name);
  made.setAttribute("class", kind);
  picture.append(made);
  return made;
}

function put(element, values) {
  for (const [name, value] of Object.entries(values)) element.setAttribute(name, value);
}

// One line through all channels, and what is chosen.
function draw(at, chosen) {
  for (const picture of pictures()) {
    const bottom = picture.height.baseVal.value - 26;
    put(shape(picture, "line", "cursor"), { x1: `${100 * at}%`, x2: `${100 * at}%`, y1: 10, y2: bottom });
    const box = shape(picture, "rect", "chosen");
    const [start, end] = chosen ? [Math.min(...chosen), Math.max(...chosen)] : [0, 0];
    put(box, { x: `${100 * start}%`, width: `${100 * (end - start)}%`, y: 10, height: Math.max(0, bottom - 10) });
  }
}

// What an address calls a place of the plot: per cent of the sequence, or the time of a sequence of the stream.
function ends(box, start, end) {
  if (box.dataset.zoom === "share") {
    const [first, last] = [Number(box.dataset.first), Number(box.dataset.last)];
    return [start, end].map((each) => (first + each * (last - first)).toFixed(2));
  }
  const times = box.dataset.times.split(",").map(Number);
  const at = (each) => Math.min(times.length - 1, Math.max(0, each));
  const [first, last] = [at(Math.ceil(start * times.length - 0.5)), at(Math.floor(end * times.length - 0.5))];
  return [Math.min(first, last), Math.max(first, last)].map((each) => `${new Date(1000 * times[each]).toISOString().slice(0, 19)}Z`);
}

function show(range) {
  const url = new URL(location.href);
  for (const [i, name] of ["from", "to"].entries()) {
    if (range) url.searchParams.set(name, range[i]);
    else url.searchParams.delete(name);
  }
  for (const name of ["before", "id", "said"]) url.searchParams.delete(name);
  history.pushState(null, "", url);
  renew();
}

addEventListener("popstate", () => renew());

function finish(picture) {
  const [start, end] = drag ? [Math.min(...drag), Math.max(...drag)] : [0, 0];
  drag = null;
  if (end - start < LEAST) return draw(end, null);
  show(ends(picture.closest("[data-zoom]"), start, end));
}

function press(picture, event) {
  const step = event.key === "ArrowLeft" ? -0.02 : event.key === "ArrowRight" ? 0.02 : 0;
  if (event.key === "Enter" && drag && event.target === picture) finish(picture);
  else if (event.key === "Escape") {
    if (drag) draw((drag = null) ?? 0, null);
    else if (new URL(location.href).searchParams.has("from")) show(null);
    else return;
  } else if (step) {
    const now = Number(picture.dataset.share ?? 0.5);
    const next = Math.min(1, Math.max(0, now + step));
    picture.dataset.share = String(next);
    drag = event.shiftKey ? [drag ? drag[0] : now, next] : null;
    draw(next, drag);
  } else return;
  event.preventDefault();
}

function listen(picture) {
  let isDown = false;
  let wasDragged = false;
  picture.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    [isDown, wasDragged] = [true, false];
    drag = [share(picture, event), share(picture, event)];
  });
  picture.addEventListener("pointermove", (event) => {
    const at = share(picture, event);
    if (isDown && drag) {
      drag[1] = at;
      if (!wasDragged && Math.abs(drag[1] - drag[0]) >= LEAST) {
        wasDragged = true;
        picture.setPointerCapture(event.pointerId); // from here on it is no click on a link
      }
    }
    draw(at, isDown && wasDragged ? drag : null);
  });
  picture.addEventListener("pointerup", () => {
    if (isDown) finish(picture);
    isDown = false;
  });
  picture.addEventListener("pointercancel", () => {
    isDown = false;
    drag = null;
    draw(0, null);
  });
  picture.addEventListener("dragstart", (event) => event.preventDefault()); // links are not carried away
  picture.addEventListener("click", (event) => wasDragged && event.preventDefault());
  picture.addEventListener("keydown", (event) => press(picture, event));
}

export function dressCurves() {
  drag = null;
  for (const picture of document.querySelectorAll("svg.panel, [data-zoom] svg[role]")) picture.setAttribute("tabindex", "0");
  for (const picture of pictures()) listen(picture);
  for (const hint of document.querySelectorAll(".drag")) hint.hidden = false;
}

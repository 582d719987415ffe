// Times in the format of the browser, and in the plant's zone or else the browser's, with the zone's name.
const zone = known(document.documentElement.dataset.zone);
const DATE = { day: "2-digit", month: "2-digit", year: "numeric" };
const CLOCK = { hour: "2-digit", minute: "2-digit" };
const FORMS = {
  date: DATE,
  clock: CLOCK,
  clock_second: { ...CLOCK, second: "2-digit" },
  minute: { ...DATE, ...CLOCK },
  second: { ...DATE, ...CLOCK, second: "2-digit" },
  fine: { ...DATE, ...CLOCK, second: "2-digit", fractionalSecondDigits: 3 },
};
const formats = new Map();

function known(name) {
  try {
    return new Intl.DateTimeFormat(undefined, { timeZone: name }).resolvedOptions().timeZone;
  } catch {
    return undefined; // a zone that is newer than the browser: then its own, and every time says which
  }
}

function formatted(at, form, isZoned) {
  const key = `${form} ${isZoned}`;
  if (!formats.has(key)) {
    const zoned = isZoned ? { timeZoneName: "short" } : {};
    formats.set(key, new Intl.DateTimeFormat(undefined, { timeZone: zone, ...FORMS[form], ...zoned }));
  }
  return formats.get(key).format(at);
}

function zoneName(at) {
  const parts = new Intl.DateTimeFormat(undefined, { timeZone: zone, timeZoneName: "short" }).formatToParts(at);
  return parts.find((each) => each.type === "timeZoneName").value;
}

// The head of a column names the zone once, if all times below have the same one.
function showColumns(table) {
  const columns = new Map();
  for (const time of table.querySelectorAll("td > time")) {
    const cell = time.parentElement;
    if (cell.children.length > 1) continue;
    if (!columns.has(cell.cellIndex)) columns.set(cell.cellIndex, []);
    columns.get(cell.cellIndex).push(time);
  }
  for (const [index, times] of columns) {
    const names = new Set(times.map((each) => zoneName(new Date(each.dateTime))));
    if (names.size > 1) continue;
    const head = table.tHead.rows[0].cells[index];
    head.textContent += ` (${[...names][0]})`;
    for (const time of times) {
      time.dataset.unzoned = "";
      time.parentElement.dataset.head = head.textContent;
    }
  }
}

export function showTimes() {
  for (const table of document.querySelectorAll("table.rows:not([data-timed])")) {
    table.dataset.timed = "";
    showColumns(table);
  }
  for (const time of document.querySelectorAll("time:not([data-shown])")) show(time, time.dateTime);
  for (const picture of document.querySelectorAll("svg")) {
    let date = null; // of equal dates in a row the first is written
    for (const time of picture.querySelectorAll("tspan[data-at]:not([data-shown])")) {
      show(time, time.dataset.at);
      if (time.dataset.form !== "date") continue;
      const same = formatted(new Date(time.dataset.at), "date", false);
      if (same === date) time.textContent = "";
      date = same;
    }
  }
}

function show(time, at) {
  time.dataset.shown = "";
  time.textContent = formatted(new Date(at), time.dataset.form, time.dataset.unzoned === undefined);
}

// Details of each run's last evaluation (mistakes, confusion matrix, classes, calibration), and examples of training images.
const MOST_CONFUSED = 50, MOST_ROWS = 1000, MOST_PAIRS = 20;
const nameOf = (e, k) => e.classes[k] || `class ${k}`;
const bdi = text => el('bdi', {}, text);
const ratio = (part, whole) => whole > 0 ? part / whole : null;

// A table that is sorted by clicking a column. Rows are lists of {show, key}. Columns of numbers sort the largest first.
function sortable(columns, rows, attributes) {
  const body = el('tbody', {});
  const fill = () => body.replaceChildren(...rows.map(row => el('tr', {}, ...row.map((cell, k) =>
    el('td', columns[k].n ? { class: 'n' } : {}, cell.show)))));
  const heads = columns.map((column, k) => {
    const button = el('button', { type: 'button', class: 'sort' }, column.name);
    const head = el('th', column.n ? { class: 'n' } : {}, button);
    button.addEventListener('click', () => {
      const down = head.getAttribute('aria-sort') ? head.getAttribute('aria-sort') !== 'descending' : !!column.n;
      heads.forEach(other => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const order = (a, b) => a === b ? 0 : a === null ? 1 : b === null ? -1 : (a < b ? -1 : 1) * (down ? -1 : 1);
      rows.sort((a, b) => order(a[k].key, b[k].key));
      fill();
    });
    return head;
  });
  fill();
  return el('div', { class: 'wide' }, el('table', attributes || {}, el('thead', {}, el('tr', {}, ...heads)), body));
}
const text = value => ({ show: bdi(value), key: value.toLocaleLowerCase() });
const count = value => ({ show: grouped(value), key: value });
const share = value => ({ show: percent(value), key: value });

function picture(one, label) {
  const img = el('img', { alt: label, decoding: 'async' });
  if (one.picture) img.src = one.picture;
  return one.picture ? img : el('span', { class: 'hint' }, 'no picture');
}

function mistakes(e) {
  const shown = e.worst.map(one => {
    const [best] = one.guesses, taken = best ? nameOf(e, best[0]) : '–', is = nameOf(e, one.label);
    return el('figure', { class: 'shot' }, picture(one, `image ${one.id}: ${is}, taken for ${taken}`),
      el('figcaption', {}, el('b', {}, bdi(is)), el('span', {}, 'taken for '), bdi(taken),
        ...[`${best ? percent(best[1]) : '–'} sure`, `right at place ${grouped(one.place)}`, `loss ${short(one.loss)}`, `image ${one.id}`, ...(one.file ? [one.file] : [])].map(line => el('span', { class: 'hint' }, line))));
  });
  return [el('h3', {}, `The worst of ${grouped(e.mistakes)} mistakes`),
    shown.length ? el('div', { class: 'shots' }, ...shown) : el('p', {}, 'None.')];
}

function confusion(e) {
  const cells = new Map(e.confusion.map(([label, taken, images]) => [label + ':' + taken, images]));
  const wrong = e.classes.map(() => 0);
  for (const [label, taken, images] of e.confusion) if (label !== taken) {
    wrong[label] = (wrong[label] ?? 0) + images;
    wrong[taken] = (wrong[taken] ?? 0) + images;
  }
  let order = e.classes.map((_, k) => k);
  const many = order.length > MOST_CONFUSED;
  if (many) order = order.sort((a, b) => wrong[b] - wrong[a] || a - b).slice(0, MOST_CONFUSED).sort((a, b) => a - b);
  const orders = { 'as in the data set': (a, b) => a - b, 'by mistakes': (a, b) => wrong[b] - wrong[a] || a - b,
    'by name': (a, b) => nameOf(e, a).localeCompare(nameOf(e, b)) };
  const place = el('div', { class: 'wide' });
  const cell = (label, taken) => {
    const images = cells.get(label + ':' + taken) || 0, part = Math.sqrt(ratio(images, e.images[label]) || 0);
    const node = el('td', { title: `${nameOf(e, label)} taken for ${nameOf(e, taken)}: ${grouped(images)} of ${grouped(e.images[label])}`,
      class: label === taken ? 'own' : '' }, images ? grouped(images) : '');
    if (images) node.style.setProperty('--part', `${Math.round(100 * part)}%`);
    if (part > 0.6) node.classList.add('full');
    return node;
  };
  const fill = () => place.replaceChildren(el('table', { class: 'matrix' },
    el('thead', {}, el('tr', {}, el('th', { class: 'corner' }, 'class \\ taken for'), ...order.map(k => el('th', { scope: 'col', title: nameOf(e, k) }, el('span', {}, bdi(nameOf(e, k))))))),
    el('tbody', {}, ...order.map(label => el('tr', {}, el('th', { scope: 'row', title: nameOf(e, label) }, bdi(nameOf(e, label))), ...order.map(taken => cell(label, taken)))))));
  const choice = el('select', {}, ...Object.keys(orders).map(key => el('option', {}, key)));
  choice.addEventListener('change', () => { order.sort(orders[choice.value]); fill(); });
  fill();
  const note = many ? el('p', { class: 'hint' }, `The ${MOST_CONFUSED} classes of ${grouped(e.classes.length)} with the most mistakes; the CSV file has all.`) : null;
  return [el('h3', {}, 'Confusion'), note, el('div', { class: 'tools' }, el('label', {}, 'order ', choice), csv(e)), place];
}

function csv(e) {
  const button = el('button', { type: 'button', class: 'csv' }, 'CSV of all cells');
  const field = value => /[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
  button.addEventListener('click', () => {
    const lines = e.confusion.map(([label, taken, images]) => `${label},${field(nameOf(e, label))},${taken},${field(nameOf(e, taken))},${images}`);
    const blob = new Blob(['label,class,taken_for,taken_for_class,images\n' + lines.join('\n') + '\n'], { type: 'text/csv' });
    const link = el('a', { download: `confusion-${e.split}.csv` });
    link.href = URL.createObjectURL(blob);
    link.click();
  });
  return e.confusion_left_out ? el('span', {}, button, ` without ${grouped(e.confusion_left_out)} cells of few images`) : button;
}

function pairs(e) {
  const rows = e.confusion.filter(([label, taken]) => label !== taken).sort((a, b) => b[2] - a[2]).slice(0, MOST_PAIRS)
    .map(([label, taken, images]) => [text(nameOf(e, label)), text(nameOf(e, taken)), count(images), share(ratio(images, e.images[label]))]);
  if (!rows.length) return [];
  return [el('h3', {}, 'Most often taken for another'),
    sortable([{ name: 'class' }, { name: 'taken for' }, { name: 'images', n: true }, { name: 'of the class', n: true }], rows, { class: 'compact' })];
}

const f1 = (e, k) => ratio(2 * e.right[k], e.images[k] + e.predicted[k]);
function perClass(e) {
  let order = e.classes.map((_, k) => k);
  const many = order.length > MOST_ROWS;
  if (many) order = order.sort((a, b) => (f1(e, a) ?? 2) - (f1(e, b) ?? 2)).slice(0, MOST_ROWS);
  const several = e.several, precision = k => several ? [share(several.average_precision[k])] : [];
  const rows = order.map(k => [text(nameOf(e, k)), count(e.images[k]), count(e.predicted[k]), count(e.right[k]),
    share(ratio(e.right[k], e.predicted[k])), share(ratio(e.right[k], e.images[k])), share(f1(e, k)), ...precision(k)]);
  const names = ['images', 'taken for it', 'right', 'precision', 'recall', 'F1', ...(several ? ['average precision'] : [])];
  const columns = [{ name: 'class' }, ...names.map(name => ({ name, n: true }))];
  const note = many ? el('p', { class: 'hint' }, `The ${grouped(MOST_ROWS)} classes of ${grouped(e.classes.length)} with the lowest F1.`) : null;
  return [el('h3', {}, 'Classes'), note, sortable(columns, rows, { class: 'classes compact' })];
}

function calibrationChart(e) {
  const width = 420, height = 240, box = { left: 46, right: 396, top: 8, bottom: 204 };
  const X = x => box.left + x * (box.right - box.left), Y = y => box.bottom - y * (box.bottom - box.top);
  const svg = draw('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'calibration' });
  const put = (x, y, anchor, words) => { const node = draw('text', { x, y, 'text-anchor': anchor }); node.textContent = words; svg.append(node); };
  for (const at of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(draw('line', { class: 'grid', x1: box.left, x2: box.right, y1: Y(at), y2: Y(at) }));
    put(box.left - 5, Y(at) + 4, 'end', `${100 * at} %`);
    put(X(at), box.bottom + 15, 'middle', `${100 * at} %`);
  }
  put((box.left + box.right) / 2, height - 3, 'middle', 'what it says');
  const bins = e.calibration.length, most = Math.max(1, ...e.calibration.map(bin => bin.images));
  e.calibration.forEach((bin, k) => {
    const right = ratio(bin.right, bin.images);
    if (right === null) return;
    const bar = draw('rect', { class: 'bin', x: X(k / bins) + 1, width: (box.right - box.left) / bins - 2, y: Y(right), height: box.bottom - Y(right),
      'fill-opacity': 0.25 + 0.6 * Math.sqrt(bin.images / most) });
    const title = draw('title', {});
    title.textContent = `says ${percent(bin.confidence)}, is right in ${percent(right)} of ${grouped(bin.images)} images`;
    bar.append(title);
    svg.append(bar);
  });
  svg.append(draw('line', { class: 'mark', x1: X(0), y1: Y(0), x2: X(1), y2: Y(1) }));
  return svg;
}
function calibrated(e) {
  return [el('h3', {}, 'Calibration'), el('p', { class: 'hint' },
    `Height: share that is right of the images of which it is so sure; on the dashed line it is as sure as it is right. Paler bars have fewer images. Expected calibration error ${percent(e.ece)}.`),
  el('figure', { class: 'narrow' }, calibrationChart(e))];
}

// A frame with axes. Returns the drawing and the functions from values to places.
function plotFrame(name, xs, ys, xWords, yWords) {
  const width = 420, height = 300, box = { left: 58, right: 410, top: 8, bottom: 254 };
  const span = values => { const [a, b] = [Math.min(...values), Math.max(...values)]; return b > a ? [a, b] : [a - 0.5, b + 0.5]; };
  const [x0, x1] = span(xs), [y0, y1] = span(ys);
  const X = x => box.left + (x - x0) / (x1 - x0) * (box.right - box.left), Y = y => box.bottom - (y - y0) / (y1 - y0) * (box.bottom - box.top);
  const svg = draw('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': name });
  const put = (x, y, anchor, words) => { const node = draw('text', { x, y, 'text-anchor': anchor }); node.textContent = words; svg.append(node); };
  for (const at of ticks(y0, y1, 4)) {
    svg.append(draw('line', { class: 'grid', x1: box.left, x2: box.right, y1: Y(at), y2: Y(at) }));
    put(box.left - 5, Y(at) + 4, 'end', short(at));
  }
  for (const at of ticks(x0, x1, 4)) put(X(at), box.bottom + 15, 'middle', short(at));
  put((box.left + box.right) / 2, height - 8, 'middle', xWords);
  put(box.left + 4, box.top + 10, 'start', yWords);
  return { svg, X, Y, box };
}
// The prediction over the number. A perfect prediction is on the dashed line.
function parity(plot) {
  const all = plot.points.flat();
  const { svg, X, Y } = plotFrame(`predictions of ${plot.name}`, all, all, 'number', 'predicted');
  const [least, most] = [Math.min(...all), Math.max(...all)];
  for (const [x, y] of plot.points) svg.append(draw('circle', { cx: X(x).toFixed(1), cy: Y(y).toFixed(1), r: 2, style: `fill:${color(0)}`, 'fill-opacity': 0.45 }));
  svg.append(draw('line', { class: 'mark', x1: X(least), y1: Y(least), x2: X(most), y2: Y(most) }));
  return svg;
}
function residuals(plot) {
  const [least, most] = plot.range, bins = plot.residuals.length, width = (most - least || 1) / bins;
  const { svg, X, Y, box } = plotFrame(`residuals of ${plot.name}`, [least, least + bins * width], [0, ...plot.residuals], 'predicted minus number', 'images');
  plot.residuals.forEach((images, k) => {
    const from = least + k * width;
    const bar = draw('rect', { class: 'bin', x: X(from) + 0.5, width: Math.max(1, X(from + width) - X(from) - 1), y: Y(images), height: box.bottom - Y(images) });
    const title = draw('title', {});
    title.textContent = `${short(from)} to ${short(from + width)}: ${grouped(images)} images`;
    bar.append(title);
    svg.append(bar);
  });
  return svg;
}
function targetPlots(e) {
  const value = number => ({ show: short(number), key: known(number) ? number : null });
  const rows = e.numbers.map(plot => [text(plot.name), value(plot.rmse), value(plot.mae), value(plot.r2)]);
  const columns = [{ name: 'target' }, ...['RMSE', 'MAE', 'R2'].map(name => ({ name, n: true }))];
  const plots = e.numbers.filter(plot => plot.points.length).flatMap(plot => [el('h3', {}, bdi(plot.name)),
    el('div', { class: 'shots' }, el('figure', { class: 'narrow' }, parity(plot)), el('figure', { class: 'narrow' }, residuals(plot)))]);
  return [el('h3', {}, 'Targets'), sortable(columns, rows, { class: 'compact' }), ...plots];
}

// Maps class names to indexes. Runs may have different classes, or another order. A repeated name gets a number.
function byName(e) {
  const all = new Map();
  e.classes.forEach((own, k) => { let key = own; for (let n = 2; all.has(key); n++) key = `${own} (${n})`; all.set(key, k); });
  return all;
}
function sideBySide(place, found) {
  const lists = found.map(run => byName(run.evaluation));
  const names = [...new Set(lists.flatMap(list => [...list.keys()]))];
  const shared = names.filter(key => lists.every(list => list.has(key))).length;
  place.append(el('h3', {}, 'F1 of the classes'));
  if (shared < names.length) place.append(el('p', { class: 'warn' }, `The runs have different classes: ${grouped(shared)} of ${grouped(names.length)} are in all of them.`));
  const all = names.map(key => ({ key, scores: lists.map((list, r) => list.has(key) ? f1(found[r].evaluation, list.get(key)) : null) }));
  if (all.length > MOST_ROWS) {
    const least = one => Math.min(...one.scores.map(score => score ?? 2));
    all.sort((a, b) => least(a) - least(b));
    place.append(el('p', { class: 'hint' }, `The ${grouped(MOST_ROWS)} classes of ${grouped(all.length)} with the lowest F1 in one of the runs.`));
  }
  const rows = all.slice(0, MOST_ROWS).map(({ key, scores }) => [text(key), ...scores.map(share)]);
  place.append(sortable([{ name: 'class' }, ...found.map(run => ({ name: run.name, n: true }))], rows, { class: 'compact' }));
}

function augmented(e) {
  if (!e.augmented.length) return [];
  return [el('h3', {}, 'Training images as the network sees them'), el('p', { class: 'hint' }, 'Each in its first epochs, after all transforms.'),
    el('div', { class: 'shots' }, ...e.augmented.map(one => el('figure', { class: 'shot' }, picture(one, `training image ${one.id}: ${one.words || nameOf(e, one.label)}`),
      el('figcaption', {}, bdi(one.words || nameOf(e, one.label))))))];
}

function evaluations() {
  const place = document.getElementById('found'), found = runs.filter(run => run.evaluation);
  for (const run of runs) for (const line of run.unusable || [])
    place.append(el('p', { class: 'warn' }, `${runs.length > 1 ? run.name + ': ' : ''}${line}`));
  if (!found.length) { place.append(el('p', {}, 'No split was scored, or what came of it was not kept.')); return; }
  const classified = found.filter(run => !run.evaluation.numbers);
  if (classified.length > 1) sideBySide(place, classified);
  for (const run of found) {
    const e = run.evaluation, part = el('div', { class: 'evaluation' });
    if (runs.length > 1) part.append(el('h2', {}, run.name));
    const s = e.several, labels = grouped(e.images.reduce((a, b) => a + b, 0)), where = `Split ${e.split}, step ${grouped(e.step)}`;
    if (e.numbers) {
      part.append(el('p', { class: 'hint' }, `${where}: ${labels} images with ${grouped(e.classes.length)} ${e.classes.length === 1 ? 'target' : 'targets'}.`));
      for (const node of [...targetPlots(e), ...augmented(e)]) part.append(node);
      place.append(part);
      continue;
    }
    part.append(el('p', { class: 'hint' }, s
      ? `${where}: ${grouped(s.images)} images with ${labels} labels of ${grouped(e.classes.length)} classes; mAP ${percent(s.map)}, micro-F1 ${percent(s.micro_f1)}, macro-F1 ${percent(e.macro_f1)}. A class counts as predicted where its probability is above one half.`
      : `${where}: ${labels} images of ${grouped(e.classes.length)} classes; macro-F1 ${percent(e.macro_f1)}.`));
    const nodes = s ? [...perClass(e), ...augmented(e)]
      : [...mistakes(e), ...confusion(e), ...pairs(e), ...perClass(e), ...calibrated(e), ...augmented(e)];
    for (const node of nodes) if (node) part.append(node);
    place.append(part);
  }
}

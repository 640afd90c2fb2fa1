'use strict';
// Draws the page from the JSON in it. All text of a run goes through textContent.
const { runs, version } = JSON.parse(document.getElementById('data').textContent);
const SVG = 'http://www.w3.org/2000/svg';
const DASHES = ['', '7 3', '2 3', '9 3 2 3', '12 4', '4 2 1 2'];

function el(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}
function draw(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}
const known = value => typeof value === 'number' && isFinite(value);
const grouped = value => known(value) ? Math.round(value).toLocaleString('en') : '–';
const percent = value => known(value) ? (100 * value).toFixed(2) + ' %' : '–';
function short(value) {
  if (!known(value)) return '–';
  const size = Math.abs(value);
  if (size >= 1e5) return grouped(value);
  if (size >= 1e3) return (+value.toPrecision(5)).toLocaleString('en');
  return size !== 0 && size < 1e-3 ? value.toExponential(2) : String(+value.toPrecision(5));
}
function duration(seconds) {
  if (!known(seconds)) return '–';
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return h ? `${h} h ${m} min` : m ? `${m} min ${Math.floor(s)} s` : `${s.toFixed(1)} s`;
}
const color = k => `var(--c${k % 6})`;
const dash = k => DASHES[k % DASHES.length];
// The main score: R2 if labels are numbers, mAP for a multi-label data set, otherwise top-1.
const leading = run => run.evals.some(e => known(e.rmse)) ? 'r2' : run.evals.some(e => known(e.micro_f1)) ? 'map' : 'top1';
const scoreName = name => ({ top1: 'top-1', map: 'mAP', rmse: 'RMSE', mae: 'MAE', r2: 'R2' })[name] || name;
const scoreOf = (e, name) => {
  const key = name.replace('ema.', '');
  return ['loss', 'rmse', 'mae', 'r2'].includes(key) ? short(e[key]) : percent(e[key]);
};

function head() {
  document.getElementById('title').textContent = runs.map(run => run.name).join(', ') || 'No run';
  const lead = runs.length === 1 ? `${runs[0].model || 'a run'}, ${runs[0].folder}` : `${runs.length} runs side by side`;
  document.getElementById('lead').textContent = lead;
  document.getElementById('foot').textContent = `trireme ${version}`;
  const summary = document.getElementById('summary');
  for (const run of runs) {
    const key = leading(run), lead = scoreName(key), best = run.best, by = best && best.best && best.best !== key ? best.best : key;
    const weights = run.evals.filter(e => !e.ema), last = weights[weights.length - 1], ended = run.end && run.end.ended;
    const data = run.recipe.data ? run.recipe.data.replace(/^["']|["']$/g, '') : '';
    const begun = run.begun ? `begun ${run.begun.slice(0, 16).replace('T', ' ')} UTC` : '';
    const host = run.facts && run.facts.host ? `on ${run.facts.host}` : '';
    const tile = (name, value) => el('div', { class: 'tile' }, el('b', {}, value), el('span', {}, name));
    if (runs.length > 1) summary.append(el('h2', {}, run.name));
    summary.append(el('p', { class: 'hint' }, [`${run.model || 'a network'}, ${grouped(run.parameters)} parameters`, `${grouped(run.images)} images of ${data || 'a data set'}`,
      [begun, host].filter(Boolean).join(' ')].filter(Boolean).join('; ')));
    summary.append(el('div', { class: 'tiles' },
      tile(best ? `best ${scoreName(by)} on ${best.split}, step ${grouped(best.step)}` : `${lead}: no split was scored`, best ? scoreOf(best, by) : '–'),
      tile(last ? `last ${lead} on ${last.split}, ${grouped(last.count)} images` : `last ${lead}`, last ? scoreOf(last, key) : '–'),
      ...run.at_end.slice(-2).map(e => tile(`${lead} on ${e.split}${e.ema ? ' (averages)' : ''}, at the end, ${grouped(e.count)} images`, scoreOf(e, key))),
      tile(`step of ${grouped(run.last_step)}, ${run.state}${ended ? `, ended by stop.${ended}` : ''}`, grouped(run.step)),
      run.end && known(run.end.seconds_to_target) ? tile('from the first image to the target', duration(run.end.seconds_to_target)) : null,
      tile(`images per second over all ranks, ${run.end && run.end.img_per_s > 0 ? 'since the last start' : 'mean of the logged steps'}`, grouped(run.img_per_s)),
      tile(run.end ? 'from start to end of the last start' : 'in training steps', duration(run.end ? run.end.seconds : run.seconds_of_steps)),
      tile(`${run.ranks === 1 ? 'rank' : 'ranks'}, ${run.workers || '–'} ${run.workers === 1 ? 'worker' : 'workers'}, batch ${grouped(run.batch)}`, grouped(run.ranks))));
    if (run.unread.lines)
      summary.append(el('p', { class: 'warn' }, `Not shown: ${run.unread.lines} ${run.unread.lines === 1 ? 'line' : 'lines'} of metrics.jsonl without a valid event, the first is line ${run.unread.first}.`));
    if (run.lost_steps)
      summary.append(el('p', { class: 'warn' }, `The loss was not finite in ${grouped(run.lost_steps)} logged ${run.lost_steps === 1 ? 'step' : 'steps'}. The curve leaves them out.`));
    if (run.resumed.length)
      summary.append(el('p', { class: 'hint' }, `Resumed after step ${run.resumed.map(grouped).join(', ')}.`));
  }
}

// Lines of a chart: {run, kind, x, y, lo, hi, dots}.
function fromSteps(key, kind) {
  return runs.flatMap((run, k) => run.curves[key] ? [{ run: k, kind, ...run.curves[key] }] : []);
}
function fromEvals(key, kind) {
  const place = e => e.ema ? `${e.split} (averages)` : e.split;
  return runs.flatMap((run, k) => [...new Set(run.evals.map(place))].map(split => {
    const rows = run.evals.filter(e => place(e) === split && e[key] !== null);
    return { run: k, kind: `${kind} ${split}`, x: rows.map(e => e.step), y: rows.map(e => e[key]), dots: true };
  }).filter(line => line.x.length));
}
function fromEpochs(key, kind) {
  // a single mean does not make a line, so show the steps instead
  return runs.flatMap((run, k) => run.epoch_means.length < 2 ? (run.curves[key] ? [{ run: k, kind, ...run.curves[key] }] : [])
    : [{ run: k, kind, x: run.epoch_means.map(e => e.step), y: run.epoch_means.map(e => e[key]) }]);
}
const CHARTS = [
  { name: 'Loss', log: true, lines: () => [...fromSteps('loss', 'training'), ...fromEvals('loss', 'on')] },
  { name: 'Top-1', show: percent, lines: () => [...fromEpochs('top1', 'training'), ...fromEvals('top1', 'on')].filter(line => line.y.some(known)) },
  { name: 'R2', lines: () => fromEvals('r2', 'on') },
  { name: 'RMSE, mean of the targets', zero: true, lines: () => fromEvals('rmse', 'on') },
  { name: 'mAP', show: percent, lines: () => fromEvals('map', 'on') },
  { name: 'Learning rate', lines: () => fromSteps('lr', 'rate') },
  { name: 'Images per second', zero: true, lines: () => fromSteps('img_per_s', 'images/s') },
  { name: 'Waiting time, milliseconds per step', zero: true, lines: () => [...fromSteps('data_wait_ms', 'for data'), ...fromSteps('comm_wait_ms', 'for other ranks')] },
  { name: 'Norm of the gradients', log: true, lines: () => fromSteps('grad_norm', 'norm') },
];

const view = { from: null, to: null, log: false };
const charts = [];

function ticks(from, to, count) {
  const raw = (to - from) / count, power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = power * ([1, 2, 2.5, 5, 10].find(k => k * power >= raw) || 10);
  const all = [];
  for (let at = Math.ceil(from / step) * step; at <= to + step * 1e-9; at += step) all.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return all;
}

class Chart {
  constructor(spec) {
    this.spec = spec;
    this.lines = spec.lines();
    this.kinds = [...new Set(this.lines.map(line => line.kind))];
    this.svg = draw('svg', { role: 'img', 'aria-label': spec.name });
    this.tip = el('div', { class: 'tip' });
    this.figure = el('figure', {}, el('figcaption', {}, spec.name), this.legend(), this.svg, this.tip);
    this.svg.addEventListener('pointermove', event => this.hover(event));
    this.svg.addEventListener('pointerleave', () => { this.tip.style.display = 'none'; this.mark && this.mark.remove(); });
    this.svg.addEventListener('pointerdown', event => { this.dragged = this.at(event); this.svg.setPointerCapture(event.pointerId); });
    this.svg.addEventListener('pointerup', event => this.release(event));
    this.svg.addEventListener('dblclick', () => { view.from = view.to = null; redraw(); });
  }
  // With one run, each kind has its own colour and dashes. With more runs, each run has.
  style(line) {
    const k = runs.length > 1 ? line.run : this.kinds.indexOf(line.kind);
    return { color: color(k), dash: dash(k) };
  }
  legend() {
    const names = runs.length > 1 ? runs.map((run, k) => ({ name: run.name, k })) : this.kinds.map((name, k) => ({ name, k }));
    const sample = k => {
      const svg = draw('svg', { viewBox: '0 0 34 10' });
      svg.append(draw('line', { x1: 1, x2: 33, y1: 5, y2: 5, 'stroke-width': 2.4, 'stroke-dasharray': dash(k), style: `stroke:${color(k)}` }));
      return svg;
    };
    const note = runs.length > 1 && this.kinds.length > 1 ? el('span', { class: 'hint' }, [...new Set(this.lines.map(line => `${line.dots ? 'wide with dots' : 'thin'}: ${line.kind}`))].join(' | ')) : null;
    return el('div', {}, ...names.map(({ name, k }) => el('span', { class: 'key', style: 'margin-right:.9rem' }, sample(k), name)), note);
  }
  redraw() {
    const width = Math.max(260, this.svg.clientWidth || 420), height = 254;
    const box = { left: 56, right: width - 8, top: 8, bottom: height - 36 };
    const each = runs.every(run => run.steps_per_epoch === runs[0].steps_per_epoch) ? runs[0].steps_per_epoch : 0;
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.svg.replaceChildren();
    const xs = this.lines.flatMap(line => [line.x[0], line.x[line.x.length - 1]]);
    let from = view.from ?? Math.min(0, ...xs), to = view.to ?? Math.max(1, ...xs);
    if (to <= from) to = from + 1;
    const log = view.log && this.spec.log;
    const seen = [];
    for (const line of this.lines) for (let i = 0; i < line.x.length; i++)
      if (line.x[i] >= from && line.x[i] <= to) for (const row of [line.y, line.lo, line.hi])
        if (row && known(row[i]) && (!log || row[i] > 0)) seen.push(row[i]);
    let least = seen.reduce((a, b) => Math.min(a, b), Infinity), most = seen.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!seen.length) { least = 0; most = 1; }
    if (this.spec.zero && !log) least = Math.min(0, least);
    if (log) { least = Math.log10(least); most = Math.log10(most); }
    if (most - least < 1e-12 * Math.max(1, Math.abs(most))) { least -= 0.5 * Math.abs(least) || 0.5; most += 0.5 * Math.abs(most) || 0.5; }
    const X = x => box.left + (x - from) / (to - from) * (box.right - box.left);
    const Y = y => box.bottom - ((log ? Math.log10(y) : y) - least) / (most - least) * (box.bottom - box.top);
    this.frame = { box, from, to, X, Y, log };
    const show = this.spec.show || short;
    for (const at of ticks(least, most, 4)) {
      const value = log ? Math.pow(10, at) : at, y = Y(value);
      this.svg.append(draw('line', { class: 'grid', x1: box.left, x2: box.right, y1: y, y2: y }));
      const text = draw('text', { x: box.left - 5, y: y + 4, 'text-anchor': 'end' });
      text.textContent = show(value);
      this.svg.append(text);
    }
    for (const at of ticks(from, to, Math.max(2, Math.floor(width / 110)))) {
      const edge = X(at) > box.right - 18;
      for (const [y, value] of [[height - 20, grouped(at)], ...(each ? [[height - 6, short(+(at / each).toFixed(2))]] : [])]) {
        const text = draw('text', { x: edge ? box.right + 6 : X(at), y, 'text-anchor': edge ? 'end' : 'middle' });
        text.textContent = value;
        this.svg.append(text);
      }
    }
    for (const [y, name] of [[height - 20, 'step'], ...(each ? [[height - 6, 'epoch']] : [])]) {
      const text = draw('text', { x: box.left - 14, y, 'text-anchor': 'end' });
      text.textContent = name;
      this.svg.append(text);
    }
    const clip = `clip${charts.indexOf(this)}`;
    const path = draw('clipPath', { id: clip });
    // leaves room for the dots at the first and the last step
    path.append(draw('rect', { x: box.left - 3, y: 0, width: box.right - box.left + 6, height: box.bottom + 3 }));
    const layer = draw('g', { 'clip-path': `url(#${clip})` });
    this.svg.append(path, layer);
    for (const line of this.lines) this.line(layer, line);
  }
  line(layer, line) {
    const { X, Y, log, from, to } = this.frame;
    const drawable = value => known(value) && (!log || value > 0);
    const { color: stroke, dash: dashes } = this.style(line);
    if (line.lo) {
      const ok = line.x.map((_, i) => i).filter(i => drawable(line.lo[i]) && drawable(line.hi[i]));
      const up = ok.map(i => `${X(line.x[i]).toFixed(1)},${Y(line.hi[i]).toFixed(1)}`);
      const down = ok.reverse().map(i => `${X(line.x[i]).toFixed(1)},${Y(line.lo[i]).toFixed(1)}`);
      if (up.length) layer.append(draw('polygon', { class: 'band', points: [...up, ...down].join(' '), style: `fill:${stroke}` }));
    }
    let d = '', pen = 'M';
    line.x.forEach((x, i) => {
      if (!drawable(line.y[i])) { pen = 'M'; return; }
      d += `${pen}${X(x).toFixed(1)} ${Y(line.y[i]).toFixed(1)}`;
      pen = 'L';
      if (line.dots && line.x.length < 200 && x >= from && x <= to)
        layer.append(draw('circle', { cx: X(x), cy: Y(line.y[i]), r: 2.6, style: `fill:${stroke}` }));
    });
    // with more than one run, training curves are thin and scores wide
    const wide = runs.length > 1 ? `;stroke-width:${line.dots ? 2.4 : 1};opacity:${line.dots ? 1 : .7}` : '';
    layer.append(draw('path', { class: 'curve', d, 'stroke-dasharray': dashes, style: `stroke:${stroke}${wide}` }));
  }
  at(event) {
    const rect = this.svg.getBoundingClientRect(), { box, from, to } = this.frame;
    const x = (event.clientX - rect.left) * (this.svg.viewBox.baseVal.width / rect.width);
    return Math.min(to, Math.max(from, from + (x - box.left) / (box.right - box.left) * (to - from)));
  }
  hover(event) {
    if (!this.frame) return;
    const { box, X } = this.frame, x = this.at(event);
    this.mark && this.mark.remove();
    this.mark = draw('g', {});
    this.mark.append(draw('line', { class: 'mark', x1: X(x), x2: X(x), y1: box.top, y2: box.bottom }));
    if (this.dragged !== undefined && event.buttons)
      this.mark.append(draw('rect', { class: 'zoom', x: Math.min(X(this.dragged), X(x)), width: Math.abs(X(x) - X(this.dragged)), y: box.top, height: box.bottom - box.top }));
    this.svg.append(this.mark);
    const rows = this.lines.map(line => {
      let best = 0;
      for (let i = 1; i < line.x.length; i++) if (Math.abs(line.x[i] - x) < Math.abs(line.x[best] - x)) best = i;
      const name = runs.length > 1 ? `${runs[line.run].name}, ${line.kind}` : line.kind;
      return `${name}: ${(this.spec.show || short)(line.y[best])}  (step ${grouped(line.x[best])})`;
    });
    this.tip.textContent = rows.join('\n');
    this.tip.style.display = 'block';
    const rect = this.figure.getBoundingClientRect();
    const left = event.clientX - rect.left + 14;
    this.tip.style.left = `${Math.max(0, Math.min(left, rect.width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${event.clientY - rect.top + 14}px`;
  }
  release(event) {
    const to = this.at(event), from = this.dragged;
    this.dragged = undefined;
    if (from === undefined) return;
    const { from: a, to: b } = this.frame;
    if (Math.abs(to - from) < (b - a) / 100) return;
    [view.from, view.to] = [Math.min(from, to), Math.max(from, to)];
    redraw();
  }
}
function redraw() { charts.forEach(chart => chart.redraw()); }

function curves() {
  const controls = document.getElementById('controls');
  const log = el('input', { type: 'checkbox', id: 'log' });
  log.addEventListener('change', () => { view.log = log.checked; redraw(); });
  const all = el('button', { type: 'button' }, 'See all');
  all.addEventListener('click', () => { view.from = view.to = null; redraw(); });
  controls.append(el('label', {}, log, ' losses and norms on a logarithmic scale'), all);
  for (const spec of CHARTS) {
    const chart = new Chart(spec);
    if (!chart.lines.length) continue;
    charts.push(chart);
    document.getElementById('charts').append(chart.figure);
  }
  if (!charts.length) document.getElementById('charts').append(el('p', {}, 'No step was logged.'));
  redraw();
  new ResizeObserver(redraw).observe(document.getElementById('charts'));
}

function times() {
  const place = document.getElementById('times');
  for (const run of runs) {
    const time = run.time;
    if (!known(time.step_ms)) continue;
    const rest = Math.max(0, time.step_ms - (time.data_wait_ms || 0) - (time.comm_wait_ms || 0));
    const parts = [['computing', rest, 0], ['waiting for data', time.data_wait_ms || 0, 1], ['waiting for other ranks', time.comm_wait_ms || 0, 2]];
    if (runs.length > 1) place.append(el('h3', {}, run.name));
    place.append(el('div', { class: 'bar' }, ...parts.map(([name, ms, k]) =>
      el('div', { style: `width:${100 * ms / time.step_ms}%;background:${color(k)};opacity:${[1, .7, .45][k]}`, title: `${name}: ${short(ms)} ms` }))));
    const cells = (name, ms, ranks) => el('tr', {}, el('td', {}, name), el('td', { class: 'n' }, short(ms)),
      el('td', { class: 'n' }, known(ms) ? (100 * ms / time.step_ms).toFixed(1) + ' %' : '–'),
      el('td', { class: 'n' }, ranks && ranks.every(known) ? ranks.map(short).join(' / ') : ''));
    const rows = [cells('step', time.step_ms, time.step_ranks), cells('computing, exchange that nobody waits for', rest, null),
      cells('waiting for data (slowest rank)', time.data_wait_ms, time.data_wait_ranks),
      cells('waiting for other ranks (longest)', time.comm_wait_ms, time.comm_wait_ranks)];
    place.append(el('div', { class: 'wide' }, el('table', {}, el('tr', {}, el('th', {}, 'mean of the steps after the first'),
      el('th', { class: 'n' }, 'ms'), el('th', { class: 'n' }, 'share'), el('th', { class: 'n' }, 'least / median / most of the ranks')), ...rows)));
    const names = { read_us: 'reading and checking records', decode_us: 'decoding', transform_us: 'transforms', slot_wait_us: 'waiting for a free slot' };
    const loader = Object.entries(names).filter(([key]) => known(time.loader[key]));
    if (loader.length) place.append(el('div', { class: 'wide' }, el('table', {}, el('tr', {}, el('th', {}, 'loader, a thread'), el('th', { class: 'n' }, 'microseconds an image')),
      ...loader.map(([key, name]) => el('tr', {}, el('td', {}, name), el('td', { class: 'n' }, short(time.loader[key])))))));
    if (time.exchange) place.append(el('p', { class: 'hint' },
      `Exchange, codec ${time.exchange.codec}: encode ${short(time.exchange.encode_ms)}, wire ${short(time.exchange.wire_ms)}, decode ${short(time.exchange.decode_ms)} ms a step (first steps).`));
  }
  if (!place.children.length) place.append(el('p', {}, 'Two steps are needed to tell.'));
}

function table(place, of, what, folds) {
  const keys = [...new Set(runs.flatMap(run => Object.keys(of(run) || {})))].sort();
  const value = (run, key) => (of(run) || {})[key];
  const rows = keys.map(key => {
    const differs = runs.length > 1 && new Set(runs.map(run => value(run, key))).size > 1;
    return { differs, folded: folds ? runs.every(run => folds(run, key)) : false, row: el('tr', differs ? { class: 'differs' } : {}, el('td', {}, key), ...runs.map(run => el('td', {}, value(run, key) ?? ''))) };
  });
  rows.sort((a, b) => b.differs - a.differs);
  const names = runs.length > 1 ? runs.map(run => el('th', {}, run.name)) : [el('th', {}, 'value')];
  if (!rows.length) { place.append(el('p', {}, `No ${what} was found.`)); return; }
  const shown = rows => el('div', { class: 'wide' }, el('table', {}, el('tr', {}, el('th', {}, what), ...names.map(name => name.cloneNode(true))), ...rows.map(r => r.row)));
  place.append(shown(rows.filter(r => !r.folded)));
  const folded = rows.filter(r => r.folded);
  if (folded.length) place.append(el('details', {}, el('summary', {}, `${folded.length} settings with their defaults`), shown(folded)));
}

R"js(
'use strict';
// Charts as SVG. Colours are variables of the style, so that they follow the scheme of the reader.
const SVG = 'http://www.w3.org/2000/svg';

function element(name, attributes = {}, ...children) {
  const svg = ['svg', 'g', 'path', 'rect', 'line', 'circle'].includes(name) || (name === 'text');
  const node = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

const COLOURS = 8;
const colour = index => `var(--c${index % COLOURS})`;

function significant(value, digits = 3) {
  if (!Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(1).replace('e+', 'e');
  return size >= 1000 ? Math.round(value).toLocaleString('en-US') : String(Number(value.toPrecision(digits)));
}
const percent = value => significant(100 * value) + ' %';
function seconds(value) {
  if (value >= 3600) return Math.floor(value / 3600) + ' h ' + Math.round(value % 3600 / 60) + ' min';
  if (value >= 100) return Math.floor(value / 60) + ' min ' + Math.round(value % 60) + ' s';
  if (value >= 1) return significant(value) + ' s';
  return value >= 1e-3 ? significant(value * 1e3) + ' ms' : significant(value * 1e6) + ' µs';
}
function bytes(value) {
  for (const [unit, size] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]])
    if (value >= size) return significant(value / size) + ' ' + unit;
  return value + ' B';
}

function ticksOf(low, high, count) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(factor => factor * power).find(size => size >= raw);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) ticks.push(Math.abs(tick) < step * 1e-9 ? 0 : tick);
  return ticks;
}

const tip = element('div', {id: 'tip'});
function showTip(event, text) {
  tip.textContent = text;
  tip.style.opacity = 1;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 6)) + 'px';
  tip.style.top = Math.max(4, event.clientY - box.height - 10) + 'px';
}
function withTip(node, text) {
  node.addEventListener('mousemove', event => showTip(event, text));
  node.addEventListener('mouseleave', () => { tip.style.opacity = 0; });
  return node;
}

function legend(entries) {
  return element('div', {class: 'legend'}, entries.map(([name, fill]) => element('span', {}, element('i', {style: 'background:' + fill}), name)));
}
function card(title, entries, body, wide = false, note = '') {
  return element('section', {class: 'card' + (wide ? ' wide' : '')},
    element('div', {class: 'head'}, element('h3', {}, title), note ? element('span', {class: 'note'}, note) : null, entries.length ? legend(entries) : null), body);
}

// series: {name, fill, points: [[x, y]], faint, dots}. Points that are not numbers break a line.
function lineChart(series, {format, height = 200, width = 540, zero = false, xName = 'step'}) {
  const left = 52, right = 10, top = 8, bottom = 26;
  const all = series.flatMap(one => one.points).filter(([, y]) => Number.isFinite(y));
  if (!all.length) return element('p', {class: 'note'}, 'no finite values');
  const extent = values => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  let [x0, x1] = extent(all.map(point => point[0])), [y0, y1] = extent(all.map(point => point[1]));
  if (zero) y0 = Math.min(0, y0);
  if (x0 === x1) x1 = x0 + 1;
  if (y0 === y1) y1 = y0 + (Math.abs(y0) || 1);
  const margin = (y1 - y0) * 0.06;
  if (!zero || y0 < 0) y0 -= margin;
  y1 += margin;
  const x = value => left + (value - x0) / (x1 - x0) * (width - left - right);
  const y = value => height - bottom - (value - y0) / (y1 - y0) * (height - top - bottom);
  const root = element('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img'});
  for (const tick of ticksOf(y0, y1, 4))
    root.append(element('line', {class: 'axis', x1: left, x2: width - right, y1: y(tick), y2: y(tick)}),
      element('text', {x: left - 7, y: y(tick) + 4, 'text-anchor': 'end'}, format(tick)));
  for (const tick of ticksOf(x0, x1, width > 700 ? 10 : 6).filter(Number.isInteger))
    root.append(element('text', {x: x(tick), y: height - 8, 'text-anchor': 'middle'}, tick.toLocaleString('en-US')));
  for (const one of series) {
    let path = '', begun = false;
    for (const [px, py] of one.points) {
      if (Number.isFinite(py)) path += (begun ? 'L' : 'M') + x(px).toFixed(1) + ' ' + y(py).toFixed(1);
      begun = Number.isFinite(py);
    }
    root.append(element('path', {class: 'line' + (one.faint ? ' faint' : ''), d: path, style: 'stroke:' + one.fill + (one.dots ? ';stroke-dasharray:5 4' : ''), 'data-series': one.name, 'data-points': one.points.length}));
    if (one.dots || one.points.length === 1)
      for (const [px, py] of one.points)
        if (Number.isFinite(py)) root.append(element('circle', {cx: x(px), cy: y(py), r: 3, style: 'fill:' + one.fill}));
  }
  const cursor = element('line', {class: 'axis', y1: top, y2: height - bottom, visibility: 'hidden'});
  root.append(cursor);
  root.addEventListener('mousemove', event => {
    const at = x0 + ((event.clientX - root.getBoundingClientRect().left) / root.getBoundingClientRect().width * width - left) / (width - left - right) * (x1 - x0);
    const near = one => one.points.reduce((best, point) => Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best);
    const shown = series.filter(one => one.points.length && !one.hidden).map(one => [one, near(one)]);
    const step = shown.length ? shown[0][1][0] : 0;
    cursor.setAttribute('x1', x(step));
    cursor.setAttribute('x2', x(step));
    cursor.setAttribute('visibility', 'visible');
    showTip(event, shown.map(([one, [px, py]], i) => (i ? '' : `${xName} ${px}\n`) + `${one.name}: ${format(py)}`).join('\n'));
  });
  root.addEventListener('mouseleave', () => { tip.style.opacity = 0; cursor.setAttribute('visibility', 'hidden'); });
  return root;
}

// The median of the points around each one, so that a noisy curve shows its course.
function smooth(points) {
  const reach = Math.max(1, Math.round(points.length / 50));
  return points.map(([x], i) => {
    const near = points.slice(Math.max(0, i - reach), i + reach + 1).map(point => point[1]).filter(Number.isFinite).sort((a, b) => a - b);
    return [x, near.length ? near[Math.floor(near.length / 2)] : NaN];
  });
}

// rows: [{name, parts: [bytes]}], kinds: [[name, fill]]
function stackedBars(rows, kinds, format) {
  const width = 1120, left = 64, right = 90, height = 24, gap = rows.length > 24 ? 1 : 4;
  const most = Math.max(...rows.map(row => row.parts.reduce((sum, part) => sum + part, 0)), 1);
  const root = element('svg', {viewBox: `0 0 ${width} ${rows.length * height + 4}`, role: 'img'});
  rows.forEach((row, i) => {
    let x = left;
    const total = row.parts.reduce((sum, part) => sum + part, 0);
    root.append(element('text', {x: left - 8, y: i * height + 16, 'text-anchor': 'end'}, row.name));
    row.parts.forEach((part, k) => {
      const wide = part / most * (width - left - right);
      if (part > 0)
        root.append(withTip(element('rect', {class: 'part', x, y: i * height + gap / 2, width: Math.max(wide, 0.3), height: height - gap, style: 'fill:' + kinds[k][1]}),
          `${row.name}\n${kinds[k][0]}: ${format(part)} of ${format(total)}`));
      x += wide;
    });
    root.append(element('text', {x: x + 7, y: i * height + 16}, format(total)));
  });
  return root;
}

// links: [{from, to, bytes, messages}]
function matrix(links, ranks) {
  const cell = Math.max(7, Math.min(56, 520 / ranks)), left = 60, top = 34, size = left + ranks * cell;
  const most = Math.max(...links.map(link => link.bytes), 1);
  const root = element('svg', {viewBox: `0 0 ${Math.max(size, 560)} ${top + ranks * cell + 4}`, role: 'img'});
  const every = Math.ceil(ranks * 11 / (ranks * cell) * 1.4);
  root.append(element('text', {x: left, y: 11}, 'to rank'), element('text', {x: 0, y: top + 14}, 'from'));
  for (let rank = 0; rank < ranks; ++rank) {
    if (rank % every === 0)
      root.append(element('text', {x: left + (rank + 0.5) * cell, y: top - 7, 'text-anchor': 'middle'}, rank),
        element('text', {x: left - 8, y: top + (rank + 0.5) * cell + 4, 'text-anchor': 'end'}, rank));
    root.append(element('rect', {class: 'lane', x: left, y: top + rank * cell, width: ranks * cell, height: cell - 1}));
  }
  for (const link of links) {
    const x = left + link.to * cell, y = top + link.from * cell, share = 0.2 + 0.8 * link.bytes / most;
    root.append(withTip(element('rect', {class: 'link', x, y, width: cell - 1, height: cell - 1, style: `fill:var(--accent);fill-opacity:${share.toFixed(2)}`}),
      `rank ${link.from} to ${link.to}\n${bytes(link.bytes)} in ${link.messages} messages`));
    if (cell > 44) root.append(element('text', {class: share > 0.55 ? 'on' : '', x: x + cell / 2 - 0.5, y: y + cell / 2 + 4, 'text-anchor': 'middle', 'font-size': 10}, bytes(link.bytes).replace(/iB$/, '')));
  }
  return root;
}
)js"

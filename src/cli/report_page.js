R"js(
// The sections of the page, from the files that the command has read.
const KINDS = {  // of actions: fill, colour of the text, name
  F: ['#4c78a8', 'on', 'forward'], B: ['#72b7b2', 'dark', 'backward'], I: ['#72b7b2', 'dark', 'input gradient'], W: ['#eeca3b', 'dark', 'weight gradient'],
  R: ['#b279a2', 'on', 'recompute'], O: ['#9d755d', 'on', 'update'], step: ['#a8a29e', 'dark', 'clear, reduce, update'],
};
const MEMORY = [['weights', '#4c78a8'], ['gradients', '#72b7b2'], ['optimizer', '#9d755d'], ['activations', '#f58518'], ['messages', '#b279a2'], ['scratch', '#a8a29e']];

const sources = JSON.parse(document.getElementById('data').textContent);
const of = kind => sources.filter(source => source.kind === kind);
const short = path => path.split('/').pop();
const page = document.getElementById('page');
const number = value => typeof value === 'number' ? value : NaN;
const mean = values => values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : NaN;

// A run that was resumed repeats steps; the last line of a step counts.
function runOf(source, index) {
  const steps = new Map(), evals = new Map(), last = name => source.data.filter(line => line.event === name).pop();
  for (const line of source.data) {
    if (line.event === 'step') steps.set(line.step, line);
    if (line.event === 'eval') evals.set(line.step, line);
  }
  const ascending = map => [...map.values()].sort((a, b) => a.step - b.step);
  return {name: short(source.name), fill: colour(index), facts: last('run') || {}, done: last('done'), steps: ascending(steps), evals: ascending(evals),
    saved: source.data.filter(line => line.event === 'checkpoint')};
}
const runs = of('log').map(runOf);
const prefix = run => runs.length > 1 ? run.name + ' ' : '';
const points = (run, key) => run.steps.map(step => [step.step, number(step[key])]);

function header() {
  const facts = runs.length > 1 ? {} : runs.length ? runs[0].facts : (of('prediction')[0] || {data: {}}).data;
  const model = facts.model || '';
  const title = runs.length > 1 ? `${runs.length} runs` : model.split(':')[0] || 'weft';
  const mesh = facts.mesh ? Object.entries(facts.mesh).filter(([, size]) => size > 1).map(([axis, size]) => `${axis} ${size}`).join(' × ') : '';
  const words = [facts.parameters ? significant(facts.parameters / 1e6) + ' M parameters' : '', facts.ranks ? (facts.ranks.length || facts.ranks) + ' ranks' : '', mesh, facts.schedule || '',
    facts.micro_batches ? `${facts.micro_batches} ${facts.micro_batches === 1 ? 'micro-batch' : 'micro-batches'} of ${facts.micro_batch_size}` + (facts.seq_len ? ` × ${facts.seq_len} tokens` : '') : ''];
  document.title = title + ' – weft report';
  page.append(element('header', {}, element('h1', {}, title), element('p', {}, words.filter(word => word).join('  ·  ')), element('p', {}, element('code', {}, model))));
}

function tiles() {
  const run = runs[0], last = run.steps[run.steps.length - 1], tile = (value, name, more) => element('div', {class: 'tile'}, element('b', {}, value), element('span', {}, name), more ? element('span', {}, element('br'), more) : null);
  const out = [];
  if (last) {
    const later = run.steps.length > 1 ? run.steps.slice(1) : run.steps;   // the first step warms up
    const taken = mean(later.map(step => number(step.seconds)));
    out.push(tile(significant(number(last.loss), 4), `loss at step ${last.step}`));
    if (run.evals.length) out.push(tile(significant(number(run.evals[run.evals.length - 1].eval_loss), 4), 'held-out loss'));
    out.push(tile(significant(mean(later.map(step => number(step.tokens_per_second)))), (run.facts.unit || 'tokens') + ' per second'));
    out.push(tile(percent(mean(later.map(step => number(step.idle)))), 'idle', run.facts.predicted_idle ? 'predicted ' + percent(run.facts.predicted_idle) : ''));
    out.push(tile(seconds(taken), 'per step', run.facts.predicted_seconds ? 'predicted ' + seconds(run.facts.predicted_seconds) : ''));
  }
  const planned = (run.facts.memory_by_rank || []).map(rank => Object.values(rank).reduce((sum, part) => sum + part, 0));
  if (planned.length) out.push(tile(bytes(Math.max(...planned)), planned.length > 1 ? 'on the largest rank' : 'of memory'));
  page.append(element('div', {class: 'tiles'}, out));
}

function training() {
  const shown = runs.filter(run => run.steps.length || run.evals.length);
  if (!shown.length) return;
  const grid = element('div', {class: 'grid'}), unit = shown[0].facts.unit || 'tokens';
  const losses = shown.flatMap(run => {
    const raw = points(run, 'loss'), noisy = raw.length > 40;
    const held = run.evals.map(line => [line.step, number(line.eval_loss)]);
    return [{name: prefix(run) + 'loss of each step', fill: run.fill, points: raw, faint: noisy, hidden: noisy}, ...(noisy ? [{name: prefix(run) + 'loss', fill: run.fill, points: smooth(raw)}] : []),
      ...(held.length ? [{name: prefix(run) + 'held-out loss', fill: runs.length > 1 ? run.fill : colour(1), points: held, dots: true}] : [])];
  });
  grid.append(card('Loss', losses.filter(one => !one.hidden).map(one => [one.name, one.fill]), lineChart(losses, {format: value => significant(value, 4), height: 300, width: 1120}), true));
  const chart = (title, key, options) => {
    const series = shown.map(run => ({name: prefix(run) + title.toLowerCase(), fill: run.fill, points: points(run, key)}));
    grid.append(card(title, runs.length > 1 ? series.map((one, i) => [shown[i].name, one.fill]) : [], lineChart(series, options)));
  };
  chart(unit[0].toUpperCase() + unit.slice(1) + ' per second', 'tokens_per_second', {format: significant, zero: true});
  const ranks = (shown[0].steps[0] || {idle_by_rank: []}).idle_by_rank || [];
  if (shown.length === 1 && ranks.length > 1 && ranks.length <= 16) {
    const series = ranks.map((_, rank) => ({name: 'rank ' + rank, fill: colour(rank), points: smooth(shown[0].steps.map(step => [step.step, number(step.idle_by_rank[rank])]))}));
    grid.append(card('Idle by rank', series.map(one => [one.name, one.fill]), lineChart(series, {format: percent, zero: true})));
  } else {
    chart('Idle', 'idle', {format: percent, zero: true});
  }
  chart('Learning rate', 'learning_rate', {format: significant, zero: true});
  chart('Norm of the gradients', 'grad_norm', {format: significant, zero: true});
  page.append(element('h2', {}, 'Training'), grid);
}

function timeline() {
  const traces = of('trace');
  if (!traces.length) return;
  const width = 1120, left = 64, right = 4, row = Math.max(...traces.map(trace => new Set(trace.data.slices.map(slice => slice[0])).size)) > 24 ? 12 : 22;
  const panels = traces.map(trace => {
    const begin = Math.min(...trace.data.slices.map(slice => slice[1])), rows = new Map();
    for (const [rank, at, long, kind, name] of trace.data.slices) {
      if (!rows.has(rank)) rows.set(rank, []);
      rows.get(rank).push({begin: (at - begin) / 1e6, long: long / 1e6, kind, name});
    }
    const end = Math.max(...trace.data.slices.map(slice => slice[1] + slice[2] - begin)) / 1e6;
    const busy = trace.data.slices.reduce((sum, slice) => sum + slice[2], 0) / 1e6;
    return {trace, rows: [...rows].sort((a, b) => a[0] - b[0]), end, idle: 1 - busy / (end * rows.size), predicted: trace.data.predicted};
  }).sort((a, b) => b.predicted - a.predicted);
  const longest = Math.max(...panels.map(panel => panel.end)), scale = (width - left - right) / longest;
  const root = element('svg', {role: 'img'}), used = new Set();
  let top = 0;
  for (const panel of panels) {
    root.append(element('text', {class: 'title', x: left, y: top + 15}, (panel.predicted ? 'predicted' : `measured, step ${panel.trace.data.step + 1}`) + (panels.length > 2 || panel.trace.name ? `  (${short(panel.trace.name)})` : '')),
      element('text', {x: width - right, y: top + 15, 'text-anchor': 'end'}, `${seconds(panel.end)}, idle ${percent(panel.idle)}`));
    top += 24;
    for (const [rank, slices] of panel.rows) {
      root.append(element('text', {x: left - 8, y: top + row / 2 + 3, 'text-anchor': 'end'}, 'rank ' + rank),
        element('rect', {class: 'lane', x: left, y: top, width: (panel.end * scale).toFixed(1), height: row - 3}));
      const stages = [...new Set(slices.filter(slice => slice.kind !== 'step').map(slice => parseInt(slice.name)))].sort((a, b) => a - b);
      for (const slice of slices) {
        const [fill, ink, kind] = KINDS[slice.kind] || KINDS.step, wide = Math.max(slice.long * scale, 0.4), x = left + slice.begin * scale;
        const pale = stages.length > 1 && slice.kind !== 'step' ? 1 - 0.4 * stages.indexOf(parseInt(slice.name)) / stages.length : 1;
        used.add(KINDS[slice.kind] ? slice.kind : 'step');
        root.append(withTip(element('rect', {class: 'slice', x: x.toFixed(2), y: top, width: wide.toFixed(2), height: row - 3, rx: wide > 6 ? 2 : 0, style: `fill:${fill};fill-opacity:${pale}`}),
          `${slice.name}  ${slice.kind === 'step' ? '' : kind}\n${seconds(slice.long)}, from ${seconds(slice.begin)}`));
        const text = slice.name.replace(/^\d+/, '');
        if (slice.kind !== 'step' && row > 16 && wide > 7 * text.length + 2) root.append(element('text', {class: ink, x: (x + wide / 2).toFixed(1), y: top + 14, 'text-anchor': 'middle'}, text));
      }
      top += row;
    }
    top += 12;
  }
  root.setAttribute('viewBox', `0 0 ${width} ${top}`);
  const entries = Object.keys(KINDS).filter(kind => used.has(kind)).map(kind => [KINDS[kind][2], KINDS[kind][0]]);
  page.append(element('h2', {}, 'One step' + (panels.length > 1 ? ', on one time scale' : '')), card('Timeline', entries, root, true));
}

function memory() {
  const of_run = runs.filter(run => run.facts.memory_by_rank).map(run => ({name: run.name, ranks: run.facts.memory_by_rank, done: run.done}));
  const of_plan = of('prediction').filter(plan => plan.data.ranks && plan.data.ranks[0] && plan.data.ranks[0].memory).map(plan => ({name: short(plan.name), ranks: plan.data.ranks.map(rank => rank.memory)}));
  const all = [...of_run, ...of_plan].filter(one => one.ranks.length);
  if (!all.length) return;
  page.append(element('h2', {}, 'Memory by rank'));
  for (const one of all) {
    const rows = one.ranks.map((rank, i) => ({name: 'rank ' + i, parts: MEMORY.map(([kind]) => rank[kind] || 0)}));
    const measured = one.done && one.done.peak_bytes_by_rank ? 'planned before the first step; measured: ' + one.done.peak_bytes_by_rank.measured.map(bytes).join(', ') : 'planned before the first step';
    page.append(element('div', {class: 'grid'}, card(all.length > 1 ? one.name : 'Planned bytes', MEMORY, stackedBars(rows, MEMORY, bytes), true, rows.length > 8 ? '' : measured)));
  }
}

function messages() {
  const all = [...runs.map(run => ({name: run.name, links: run.facts.links || [], ranks: run.facts.ranks})), ...of('prediction').map(plan => ({name: short(plan.name), links: plan.data.links, ranks: plan.data.ranks.length}))]
    .filter(one => one.links.length);
  if (!all.length) return;
  page.append(element('h2', {}, 'Messages of a step'));
  for (const one of all) {
    const total = key => one.links.reduce((sum, link) => sum + link[key], 0), most = [...one.links].sort((a, b) => b.bytes - a.bytes).slice(0, 8);
    const cells = (...texts) => element('tr', {}, texts.map((text, i) => element('td', i ? {class: 'number'} : {}, text)));
    const table = element('table', {}, element('tr', {}, element('th', {}, 'link'), element('th', {class: 'number'}, 'bytes'), element('th', {class: 'number'}, 'messages')),
      most.map(link => cells(`rank ${link.from} to ${link.to}`, bytes(link.bytes), significant(link.messages))), cells('all links', bytes(total('bytes')), significant(total('messages'))));
    page.append(element('div', {class: 'grid'}, card(all.length > 1 ? one.name : 'Bytes between ranks', [], matrix(one.links, one.ranks)), card('Largest links', [], table)));
  }
}

function plans() {
  for (const plan of of('plan')) {
    const rows = plan.data.rows.slice(0, 64).map((row, rank) => element('div', {}, element('b', {}, 'row ' + rank), row.split(' ').slice(0, 400).map(action => {
      const [fill, ink] = KINDS[(action.match(/[A-Z]/) || [''])[0]] || KINDS.step;
      return element('span', {style: `background:${fill};color:${ink === 'on' ? '#fff' : '#20303a'}`}, action);
    })));
    const settings = Object.entries({...plan.data, ...plan.data.optimizer}).filter(([name, value]) => name !== 'format' && typeof value !== 'object' && value !== '' && value !== 0 && value !== false);
    if ((plan.data.cuts || []).length) settings.unshift(['stages begin at', plan.data.cuts.join(', ')]);
    const table = element('div', {class: 'settings'}, settings.map(([name, value]) => element('div', {}, element('span', {}, name.replaceAll('_', ' ')), element('code', {}, String(value)))));
    page.append(element('h2', {}, 'Plan ' + short(plan.name)), card('Settings', [], table, true));
    if (rows.length) page.append(card('Order of the actions', [], element('div', {class: 'rows'}, rows), true));
  }
}

function results() {
  const columns = ['run', 'steps', 'last loss', 'held-out loss', 'time', 'digest of the parameters'];
  const rows = runs.map(run => {
    const last = run.steps[run.steps.length - 1], held = run.evals[run.evals.length - 1];
    return [run.name, last ? last.step : '–', last ? significant(number(last.loss), 5) : '–', held ? significant(number(held.eval_loss), 5) : '–', run.done ? seconds(run.done.seconds) : 'not finished',
      run.done ? element('code', {}, run.done.digest) : '–'];
  });
  page.append(element('h2', {}, 'Results'), card('Runs', [], element('table', {}, element('tr', {}, columns.map(name => element('th', {}, name))),
    rows.map(row => element('tr', {}, row.map(value => element('td', {}, value))))), true));
}

header();
if (runs.length === 1) tiles();
if (runs.length > 1) results();
training();
timeline();
memory();
messages();
plans();
if (runs.length === 1) results();
const kernels = runs.map(run => run.done && run.done.kernels).filter(text => text);
page.append(element('footer', {}, `Made by weft report from ${sources.map(source => source.name).join(', ')}.` + (kernels.length ? ` Kernels: ${[...new Set(kernels)].join('; ')}.` : '')));
document.body.append(tip);
document.body.dataset.drawn = sources.length;
)js"

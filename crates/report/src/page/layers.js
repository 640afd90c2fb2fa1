// Statistics of the layers: the last measurement as a table, and curves of the selected values over the steps.
function layers() {
  const section = document.getElementById('layers'), measured = runs.filter(run => run.layers);
  section.hidden = !measured.length;
  for (const run of measured) {
    const { steps, tensors } = run.layers, coded = tensors.some(tensor => tensor.zero_codes.some(known));
    if (runs.length > 1) section.append(el('h3', {}, run.name));
    const number = value => ({ show: short(value), key: value ?? null });
    const last = list => list[list.length - 1];
    const columns = [{ name: 'parameter' }, ...['elements', 'weight mean', 'weight deviation', 'gradient mean', 'gradient deviation', 'gradient least', 'gradient most', 'gradient zeros',
      ...(coded ? ['codes that are 0'] : [])].map(name => ({ name, n: true }))];
    const rows = tensors.map(tensor => [text(tensor.name), count(tensor.elements), number(tensor.weight.mean), number(tensor.weight.deviation), number(tensor.gradient.mean),
      number(tensor.gradient.deviation), number(tensor.gradient.least), number(tensor.gradient.most), share(tensor.gradient.zeros), ...(coded ? [share(last(tensor.zero_codes))] : [])]);
    const kinds = { 'deviation of the gradient': 'gradient_deviation', 'mean of the gradient': 'gradient_mean', 'zeros in the gradient': 'gradient_zeros',
      'deviation of the weights': 'weight_deviation', ...(coded ? { 'codes that are 0': 'zero_codes' } : {}) };
    const kind = el('select', {}, ...Object.keys(kinds).map(name => el('option', {}, name)));
    const tensor = el('select', {}, ...tensors.map((one, k) => el('option', { value: k }, one.name)));
    const place = el('div', { class: 'charts' });
    const show = () => {
      const old = place.chart, one = tensors[tensor.value];
      const chart = new Chart({ name: `${kind.value}, ${one.name}`, lines: () => [{ run: runs.indexOf(run), kind: kind.value, x: steps, y: one[kinds[kind.value]], dots: true }] });
      if (old) charts.splice(charts.indexOf(old), 1, chart); else charts.push(chart);
      place.chart = chart;
      place.replaceChildren(chart.figure);
      chart.redraw();
    };
    kind.addEventListener('change', show);
    tensor.addEventListener('change', show);
    section.append(el('div', { class: 'tools' }, el('label', {}, 'show ', kind), el('label', {}, 'of ', tensor)), place,
      el('p', { class: 'hint' }, `Measured at ${grouped(steps.length)} steps that are shown; the table is of step ${grouped(last(steps))}.`), sortable(columns, rows));
    show();
  }
}

'use strict';
// The page is complete without this script. It adds tooltips, buttons that hide lines, buttons that
// choose a figure, and a theme button. It also writes to attributes of <html> whether all charts are
// drawn, which the tests read.
(() => {
  const root = document.documentElement;
  const failures = [];
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text) element.textContent = text;
    return element;
  };
  const visible = (element) => element.getClientRects().length > 0;

  addEventListener('error', (event) => fail(event.message));
  function fail(why) {
    failures.push(why);
    root.dataset.failed = failures.join('; ');
  }

  // A chart is drawn if it has markers, and each of its shapes has a width or a height.
  function countDrawn() {
    const hasExtent = (shape) => {
      const box = shape.getBBox();
      return box.width > 0 || box.height > 0;
    };
    let drawn = 0;
    for (const chart of all('svg.chart').filter(visible)) {
      const marks = all('.c-mark', chart);
      const shapes = [...marks, ...all('.c-line,.c-axis,.c-bar', chart)];
      if (marks.length > 0 && shapes.every(hasExtent)) drawn += 1;
      else fail('not drawn: ' + chart.getAttribute('aria-labelledby'));
    }
    root.dataset.drawn = drawn;
  }

  function themeSwitch() {
    const names = ['auto', 'light', 'dark'];
    let stored = 'auto';
    try { stored = localStorage.getItem('longhaul-theme') || 'auto'; } catch { /* a browser may forbid storage */ }
    const button = make('button', 'theme');
    button.type = 'button';
    const apply = (name) => {
      if (name === 'auto') delete root.dataset.theme;
      else root.dataset.theme = name;
      button.textContent = 'Theme: ' + name;
    };
    let current = Math.max(0, names.indexOf(stored));
    apply(names[current]);
    button.addEventListener('click', () => {
      current = (current + 1) % names.length;
      apply(names[current]);
      try { localStorage.setItem('longhaul-theme', names[current]); } catch { /* the choice is lost on reload */ }
    });
    document.querySelector('.top').append(button);
  }

  // If an experiment has several figures, only one is shown, with a button for each.
  function viewSwitch(views) {
    const figures = all('.view', views);
    if (figures.length < 2) return;
    const bar = make('div', 'switch');
    bar.setAttribute('role', 'group');
    bar.setAttribute('aria-label', 'Charts');
    const buttons = figures.map((figure) => {
      const button = make('button', '', figure.querySelector('figcaption').textContent);
      button.type = 'button';
      button.addEventListener('click', () => show(figure));
      bar.append(button);
      return button;
    });
    function show(chosen) {
      hideTip();
      figures.forEach((figure, index) => {
        figure.classList.toggle('off', figure !== chosen);
        buttons[index].setAttribute('aria-pressed', String(figure === chosen));
      });
    }
    // The captions repeat the buttons, so they are hidden except in print, where there are no buttons.
    figures.forEach((figure) => figure.classList.add('switched'));
    views.prepend(bar);
    show(figures[0]);
  }

  // Legend entries become buttons that hide their lines. A mouse over one fades the lines of the others.
  function legendSwitch(figure) {
    const hidden = new Set();
    const series = all('.series[data-series]', figure);
    const keysOf = (element) => element.dataset.series.split(' ');
    for (const item of all('.legend li', figure)) {
      const key = item.dataset.key;
      const button = make('button');
      button.type = 'button';
      button.title = 'Hide or show';
      button.setAttribute('aria-pressed', 'true');
      button.append(...item.childNodes);
      item.append(button);
      button.addEventListener('click', () => {
        const shown = hidden.delete(key);
        if (!shown) hidden.add(key);
        button.setAttribute('aria-pressed', String(shown));
        series.forEach((one) => {
          one.classList.toggle('off', keysOf(one).some((each) => hidden.has(each)));
        });
        hideTip();
      });
      const highlight = (on) => {
        figure.classList.toggle('fading', on && !hidden.has(key));
        series.forEach((one) => one.classList.toggle('lit', on && keysOf(one).includes(key)));
      };
      button.addEventListener('pointerenter', (event) => highlight(event.pointerType === 'mouse'));
      button.addEventListener('pointerleave', () => highlight(false));
    }
  }

  const tip = make('div', 'tip');
  tip.hidden = true;
  const spoken = make('div', 'spoken');
  spoken.setAttribute('aria-live', 'polite');
  document.body.append(tip, spoken);
  let lit = null;

  function hideTip() {
    tip.hidden = true;
    lit?.classList.remove('lit');
    lit = null;
  }

  function showTip(point) {
    if (point === lit) return;
    hideTip();
    lit = point;
    point.classList.add('lit');
    const [first, ...rest] = point.dataset.tip.split('\n');
    tip.replaceChildren(make('b', '', first), rest.join('\n'));
    tip.hidden = false;
    const mark = point.querySelector('.c-mark').getBoundingClientRect();
    const box = tip.getBoundingClientRect();
    const middle = mark.left + mark.width / 2 - box.width / 2;
    const left = Math.min(Math.max(8, middle), root.clientWidth - box.width - 8);
    const above = mark.top - box.height - 10;
    const top = above > 4 ? above : mark.bottom + 10;
    tip.style.left = left + scrollX + 'px';
    tip.style.top = top + scrollY + 'px';
  }

  const shownPoints = (chart) => all('.series:not(.off) .c-point', chart);
  const centre = (point) => {
    const box = point.querySelector('.c-mark').getBoundingClientRect();
    return { x: box.left + box.width / 2, y: box.top + box.height / 2 };
  };

  function nearest(chart, x, y, reach) {
    let best = null;
    let distance = reach;
    for (const point of shownPoints(chart)) {
      const at = centre(point);
      const far = Math.hypot(at.x - x, at.y - y);
      // Of two points at the same place, the later one is drawn on top, so <= chooses the visible one.
      if (far <= distance) [best, distance] = [point, far];
    }
    return best;
  }

  // The next point in the direction of an arrow key: on the same line, or the nearest above or below.
  function neighbour(chart, from, key) {
    const points = shownPoints(chart);
    if (!from || !points.includes(from)) return points.at(-1);
    const line = all('.c-point', from.parentNode);
    const index = line.indexOf(from);
    if (key === 'ArrowRight') return line[index + 1] || from;
    if (key === 'ArrowLeft') return line[index - 1] || from;
    const here = centre(from);
    const column = points.filter((point) => Math.abs(centre(point).x - here.x) < 14)
      .sort((one, other) => centre(one).y - centre(other).y);
    return column[column.indexOf(from) + (key === 'ArrowDown' ? 1 : -1)] || from;
  }

  function tips(chart) {
    for (const point of all('.c-point', chart)) {
      const title = point.querySelector('title');
      point.dataset.tip = title.textContent;
      title.remove();
    }
    chart.setAttribute('tabindex', '0');
    chart.setAttribute('aria-roledescription', 'chart; arrow keys go from point to point');
    const follow = (event) => {
      const point = nearest(chart, event.clientX, event.clientY, event.pointerType === 'mouse' ? 24 : 40);
      if (point) showTip(point);
      else hideTip();
    };
    chart.addEventListener('pointermove', follow);
    chart.addEventListener('pointerdown', follow);
    chart.addEventListener('pointerleave', (event) => {
      if (event.pointerType === 'mouse') hideTip();
    });
    chart.addEventListener('blur', hideTip);
    chart.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') hideTip();
      if (!event.key.startsWith('Arrow')) return;
      event.preventDefault();
      const current = chart.contains(lit) ? lit : null;
      const point = neighbour(chart, current, event.key);
      if (!point) return;
      showTip(point);
      spoken.textContent = point.dataset.tip.replaceAll('\n', ', ');
    });
  }

  // Marks the section that is being read in the table of contents.
  function contents() {
    const links = new Map(all('nav a').map((link) => [link.hash.slice(1), link]));
    const watch = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((one) => one.isIntersecting)) {
        links.forEach((link) => link.removeAttribute('aria-current'));
        links.get(entry.target.id)?.setAttribute('aria-current', 'true');
      }
    }, { rootMargin: '-15% 0px -75% 0px' });
    all('main>section').forEach((section) => watch.observe(section));
  }

  countDrawn();
  themeSwitch();
  all('.views').forEach(viewSwitch);
  all('.view').forEach(legendSwitch);
  all('svg.chart').forEach(tips);
  contents();
  addEventListener('beforeprint', () => all('details').forEach((each) => { each.open = true; }));
  addEventListener('pointerdown', (event) => {
    if (!event.target.closest('svg.chart')) hideTip();
  });
  const widths = () => {
    root.dataset.scrollWidth = root.scrollWidth;
    root.dataset.clientWidth = root.clientWidth;
  };
  widths();
  addEventListener('resize', widths);
})();

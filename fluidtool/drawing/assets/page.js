"use strict";
// Draws the pictures of #data: nothing is loaded from anywhere, and text only ever becomes text nodes.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { pictures, operators, variables, colorings, sizes } = data;
  const $ = (id) => document.getElementById(id);
  const canvas = $("canvas");
  const VALUES = ["input", "output", "outer"];
  const MOST_SHOWN = 4000; // nodes, for "Open all"

  // ---- elements
  const svg = (tag, attributes, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  const round = (value) => Math.round(value * 10) / 10;

  // ---- state
  const world = svg("g", {});
  canvas.append(world);
  const opened = new Set(); // numbers of pictures that are open in place
  const drawn = new Map(); // "picture.node" -> its element and place in the world
  const view = { x: 0, y: 0, scale: 1 };
  let coloring = colorings.findIndex((each) => each.by === data.by);
  let chosen = null, results = [], result = -1;

  const key = (picture, node) => picture + "." + node;
  const nodeOf = (name) => { const [picture, node] = name.split("."); return pictures[picture].nodes[node]; };

  // Where each picture is folded away: picture -> [picture around it, node there].
  const around = new Map();
  pictures.forEach((picture, number) => picture.nodes.forEach((node, at) => { if (node.inner !== undefined) around.set(node.inner, [number, at]); }));

  // ---- layout: what is open makes room for itself within its rank
  function measure(number) {
    const picture = pictures[number];
    const inner = picture.nodes.map((node) => (node.inner !== undefined && opened.has(node.inner) ? measure(node.inner) : null));
    const width = [], height = [];
    picture.nodes.forEach((node, at) => {
      width.push(inner[at] ? Math.max(inner[at].width, node.width) + 2 * sizes.frame : node.width);
      height.push(inner[at] ? inner[at].height + sizes.frameHead + sizes.frame : node.height);
    });
    const x = picture.x.slice();
    for (const rank of picture.ranks) separate(rank, x, (item) => (item < width.length ? width[item] : 1), (item) => item < inner.length && inner[item]);
    const tops = [], bottoms = [];
    let y = 0;
    for (const rank of picture.ranks) {
      tops.push(y);
      y += Math.max(0, ...rank.map((item) => (item < height.length ? height[item] : 0)));
      bottoms.push(y);
      y += sizes.rankGap;
    }
    let left = 0, right = 0;
    for (const rank of picture.ranks) for (const item of rank) {
      const half = item < width.length ? width[item] / 2 : 0.5;
      left = Math.min(left, x[item] - half);
      right = Math.max(right, x[item] + half);
    }
    const places = width.map((w, at) => {
      const rank = picture.rankOf[at];
      return { x: x[at] - left - w / 2, y: (tops[rank] + bottoms[rank] - height[at]) / 2, width: w, height: height[at] };
    });
    return { number, inner, places, x: x.map((each) => each - left), tops, bottoms, width: right - left, height: Math.max(0, y - sizes.rankGap) };
  }

  function separate(rank, x, widthOf, isOpen) {
    const anchor = rank.findIndex(isOpen);
    if (anchor < 0) return;
    const apart = (one, other) => (widthOf(one) + widthOf(other)) / 2 + sizes.gap;
    for (let at = anchor + 1; at < rank.length; at++) x[rank[at]] = Math.max(x[rank[at]], x[rank[at - 1]] + apart(rank[at - 1], rank[at]));
    for (let at = anchor - 1; at >= 0; at--) x[rank[at]] = Math.min(x[rank[at]], x[rank[at + 1]] - apart(rank[at], rank[at + 1]));
  }

  // ---- drawing
  function draw() {
    drawn.clear();
    const whole = measure(0);
    world.replaceChildren(scene(whole, 0, 0));
    view.width = whole.width;
    view.height = whole.height;
    mark();
  }

  function scene(found, dx, dy) {
    const picture = pictures[found.number];
    const group = svg("g", {});
    const lines = svg("g", {}), labels = svg("g", {});
    group.append(lines);
    const drawnLinks = picture.links.map((link) => link.lengths.some((each) => each !== null));
    const leaving = ports(found, picture.links.map((link, number) => (drawnLinks[number] ? link.source : null)), picture.links.map((link) => headsFor(found, link)), sizes.fan);
    const sides = labelSides(found, leaving, drawnLinks);
    const ends = picture.links.flatMap((link, number) => link.targets.map((_, at) => [number, at]));
    const before = ends.map(([number, at]) => { const link = picture.links[number], length = link.lengths[at]; return length ? link.trunk[length - 1] : link.source; });
    const arriving = ports(found, ends.map(([number, at]) => picture.links[number].targets[at]), before.map((item) => found.x[item]), sizes.port);
    const longest = picture.links.map(({ lengths }) => lengths.reduce((most, each, at) => (each !== null && (most < 0 || each > lengths[most]) ? at : most), -1));
    ends.forEach(([number, at], position) => line(found, lines, labels, number, at, leaving[number], arriving[position], at ? "" : sides[number], at === longest[number]));
    group.append(labels);
    picture.nodes.forEach((node, at) => {
      const place = found.places[at], name = key(found.number, at);
      const element = found.inner[at] ? frame(node, place, found.inner[at], dx, dy) : card(node, place);
      element.dataset.key = name;
      drawn.set(name, { element, x: dx + place.x, y: dy + place.y, width: place.width, height: place.height });
      group.append(element);
    });
    return group;
  }

  // The average place of what a link leads to in the next rank.
  function headsFor(found, link) {
    const first = new Set(link.targets.flatMap((to, at) => (link.lengths[at] === null ? [] : [link.lengths[at] ? link.trunk[0] : to])));
    return first.size ? [...first].reduce((sum, item) => sum + found.x[item], 0) / first.size : found.x[link.source];
  }

  // Of several links from one node, the outermost have a label, on the outer side.
  function labelSides(found, leaving, drawnLinks) {
    const { nodes, links } = pictures[found.number];
    const of = new Map();
    const shown = links.map((link, number) => drawnLinks[number] && !VALUES.includes(nodes[link.source].kind)); // an input says its shape itself
    links.forEach((link, number) => { if (shown[number]) of.set(link.source, [...(of.get(link.source) || []), number]); });
    return links.map((link, number) => {
      if (!shown[number]) return "";
      const all = of.get(link.source);
      if (all.length === 1) return headsFor(found, link) > leaving[number] + 1 ? "left" : "right";
      if (all.every((each) => leaving[number] < leaving[each] || each === number)) return "left";
      return all.every((each) => leaving[number] > leaving[each] || each === number) ? "right" : "";
    });
  }

  function ports(found, owners, toward, most) {
    const ends = new Map(), x = [];
    owners.forEach((owner, line) => { if (owner !== null) ends.set(owner, [...(ends.get(owner) || []), line]); });
    for (const [owner, lines] of ends) {
      const place = found.places[owner];
      const apart = Math.min(most, (place.width - 2 * sizes.pad) / lines.length);
      lines.sort((one, other) => toward[one] - toward[other] || one - other);
      lines.forEach((line, position) => { x[line] = place.x + place.width / 2 + (position - (lines.length - 1) / 2) * apart; });
    }
    return x;
  }

  function line(found, lines, labels, number, at, startX, endX, side, whole) {
    const picture = pictures[found.number], link = picture.links[number], length = link.lengths[at];
    const source = found.places[link.source], target = found.places[link.targets[at]];
    const startY = source.y + source.height, bottom = found.bottoms[picture.rankOf[link.source]];
    const ends = { "data-from": key(found.number, link.source), "data-to": key(found.number, link.targets[at]) };
    if (length !== null) {
      const points = (from) => {
        const passed = from ? [] : [[startX, startY], [startX, bottom]];
        for (const item of link.trunk.slice(Math.max(from - 1, 0), length)) passed.push([found.x[item], found.tops[picture.rankOf[item]]], [found.x[item], found.bottoms[picture.rankOf[item]]]);
        return [...passed, [endX, found.tops[picture.rankOf[link.targets[at]]]], [endX, target.y]];
      };
      // The longest line has all of the trunk; others begin where they leave it, unless they are highlighted.
      const element = svg("path", { class: "line", d: path(points(whole ? 0 : length)), ...ends });
      if (length && !whole) Object.assign(element, { own: element.getAttribute("d"), whole: () => path(points(0)) });
      lines.append(element);
    } else {
      lines.append(svg("path", { class: "line far", d: `M${round(endX)} ${round(target.y - 12)}V${round(target.y)}`, ...ends }));
      labels.append(svg("text", { class: "label", x: round(endX), y: round(target.y - 15), "text-anchor": "middle" }, link.far));
    }
    if (side && link.label) labels.append(svg("text", { class: "label", x: round(startX + (side === "left" ? -6 : 6)), y: round(bottom + 13), "text-anchor": side === "left" ? "end" : "start" }, link.label));
  }

  function path(points) {
    let text = `M${round(points[0][0])} ${round(points[0][1])}`;
    for (let at = 1; at < points.length; at++) {
      const [x0, y0] = points[at - 1], [x1, y1] = points[at];
      if (at % 2 || x0 === x1) text += `L${round(x1)} ${round(y1)}`;
      else text += `C${round(x0)} ${round((y0 + y1) / 2)} ${round(x1)} ${round((y0 + y1) / 2)} ${round(x1)} ${round(y1)}`;
    }
    return text;
  }

  function said(node) {
    const extra = coloring >= 0 && node.marks[coloring] ? node.marks[coloring][1] : "";
    return extra ? [...node.lines, extra] : node.lines;
  }

  function classes(node) {
    return `node k-${node.kind}${coloring >= 0 && node.marks[coloring] ? " " + node.marks[coloring][0] : ""}`;
  }

  function card(node, place) {
    const element = svg("g", { class: classes(node), transform: `translate(${round(place.x)} ${round(place.y)})` });
    const value = VALUES.includes(node.kind);
    const rx = value ? place.height / 2 : 7;
    if (node.inner !== undefined) element.append(svg("rect", { class: "behind", x: 4, y: 4, width: place.width, height: place.height, rx }));
    element.append(svg("rect", { class: "card", width: place.width, height: place.height, rx }));
    if (value) {
      element.append(svg("text", { class: "title", x: sizes.pad, y: 18.5 }, node.title));
      if (node.lines.length) element.append(svg("text", { class: "more", x: place.width - sizes.pad, y: 18.5, "text-anchor": "end" }, node.lines.join(" ")));
      return element;
    }
    element.append(svg("rect", { class: "stripe", x: 0, y: 6, width: 5, height: place.height - 12, rx: 2.5 }));
    element.append(svg("text", { class: "title", x: sizes.pad, y: 20 }, node.title));
    if (node.number) element.append(svg("text", { class: "number", x: place.width - (node.inner === undefined ? 10 : 28), y: 20, "text-anchor": "end" }, node.number));
    said(node).forEach((text, number) => element.append(svg("text", { class: "more", x: sizes.pad, y: 36 + 15 * number }, text)));
    if (node.inner !== undefined) element.append(toggle(place.width - 16, 16, false));
    return element;
  }

  function frame(node, place, inner, dx, dy) {
    const element = svg("g", { class: classes(node) + " open", transform: `translate(${round(place.x)} ${round(place.y)})` });
    element.append(svg("rect", { class: "card", width: place.width, height: place.height, rx: 10 }));
    element.append(svg("text", { class: "title", x: sizes.frame, y: 23 }, node.title));
    element.append(svg("text", { class: "more", x: sizes.frame, y: 39 }, said(node).join(" · ")));
    element.append(toggle(place.width - 18, 20, true));
    const x = (place.width - inner.width) / 2;
    const within = scene(inner, dx + place.x + x, dy + place.y + sizes.frameHead);
    within.setAttribute("transform", `translate(${round(x)} ${sizes.frameHead})`);
    element.append(within);
    return element;
  }

  function toggle(x, y, open) {
    const sign = open ? "M-4 0H4" : "M-4 0H4M0-4V4";
    return svg("g", { class: "fold", transform: `translate(${round(x)} ${y})` }, svg("circle", { class: "hit", r: 13 }), svg("path", { class: "toggle", d: sign }));
  }

  // ---- the view
  function show() {
    world.setAttribute("transform", `translate(${round(view.x)} ${round(view.y)}) scale(${Math.round(view.scale * 1e4) / 1e4})`);
  }
  const room = () => {
    const box = canvas.getBoundingClientRect(), panel = $("details");
    const beside = !panel.hidden && panel.offsetWidth < box.width ? panel.offsetWidth : 0;
    const below = !panel.hidden && !beside ? panel.offsetHeight : 0;
    return { width: box.width - beside, height: box.height - below };
  };
  function zoom(factor, x, y) {
    const box = room(), scale = Math.min(4, Math.max(0.01, view.scale * factor));
    x = x ?? box.width / 2;
    y = y ?? box.height / 2;
    view.x = x - ((x - view.x) * scale) / view.scale;
    view.y = y - ((y - view.y) * scale) / view.scale;
    view.scale = scale;
    show();
  }
  function fit() {
    const box = room(), margin = 24;
    view.scale = Math.min(1.25, (box.width - 2 * margin) / view.width, (box.height - 2 * margin) / view.height);
    view.x = (box.width - view.width * view.scale) / 2;
    view.y = (box.height - view.height * view.scale) / 2;
    show();
  }
  function begin() {
    // What is too tall to be read at once starts at its inputs.
    fit();
    if (view.scale >= 0.6) return;
    const box = room(), first = drawn.get(key(0, pictures[0].ranks[0] ? pictures[0].ranks[0][0] : 0));
    view.scale = Math.min(1, Math.max(0.7, (box.width - 48) / view.width));
    view.x = view.width * view.scale <= box.width ? (box.width - view.width * view.scale) / 2 : box.width / 2 - (first ? first.x + first.width / 2 : 0) * view.scale;
    view.y = 24;
    show();
  }
  function reveal(name, { center = false } = {}) {
    const found = drawn.get(name);
    if (!found) return;
    const box = room(), margin = 60;
    if (center && view.scale < 0.5) view.scale = 0.9;
    const x = view.x + (found.x + found.width / 2) * view.scale, y = view.y + (found.y + Math.min(found.height, box.height / view.scale) / 2) * view.scale;
    if (center || x < margin || x > box.width - margin) view.x += box.width / 2 - x;
    if (center || y < margin || y > box.height - margin) view.y += box.height / 2 - y;
    show();
  }

  // ---- folding
  function open(picture, wanted) {
    if (wanted) opened.add(picture);
    else opened.delete(picture);
    const owner = around.get(picture), name = owner && key(...owner), before = drawn.get(name);
    draw();
    const after = drawn.get(name);
    if (before && after) { // what was touched stays where it is
      view.x += (before.x + before.width / 2 - after.x - after.width / 2) * view.scale;
      view.y += (before.y - after.y) * view.scale;
    }
    show();
    foldable();
  }
  function openTo(name) {
    let number = Number(name.split(".")[0]);
    while (around.has(number)) {
      opened.add(number);
      number = around.get(number)[0];
    }
  }
  function openAll(wanted) {
    opened.clear();
    if (wanted) {
      let shown = pictures.length ? pictures[0].nodes.length : 0;
      for (const [number] of around) {
        const [outer] = around.get(number);
        if ((outer === 0 || opened.has(outer)) && shown + pictures[number].nodes.length <= MOST_SHOWN) {
          shown += pictures[number].nodes.length;
          opened.add(number);
        }
      }
    }
    draw();
    begin();
    foldable();
  }
  function foldable() {
    $("fold").hidden = !around.size;
    $("fold").textContent = opened.size ? "Fold all" : "Open all";
  }

  // ---- details
  function choose(name, { move = true, center = false } = {}) {
    chosen = name;
    mark();
    if (name === null) { $("details").hidden = true; return; }
    const node = nodeOf(name);
    details(node, name);
    $("said").textContent = [node.title, ...said(node)].join(", ");
    if (move) reveal(name, { center });
  }

  function details(node, name) {
    const panel = $("details"), parts = [];
    const close = html("button", { type: "button", class: "close", "aria-label": "Close the details", title: "Close (Esc)" }, "×");
    close.addEventListener("click", () => choose(null));
    parts.push(close, html("h2", {}, node.operator === undefined ? node.title : operators[node.operator].type || "(no type)"));
    if (node.operator !== undefined) operator(parts, operators[node.operator]);
    else if (node.variable !== undefined) parts.push(html("p", {}, { input: "input", output: "output", outer: "value from around this group" }[node.kind]), table([variable("name", node.variable)]));
    else node.lines.forEach((text) => parts.push(html("p", {}, text)));
    colorings.forEach((each, number) => { if (node.marks[number]) parts.push(html("h3", {}, each.by), html("p", {}, node.marks[number][1])); });
    if (node.inner !== undefined) {
      const button = html("button", { type: "button" }, opened.has(node.inner) ? "Fold" : "Open");
      button.addEventListener("click", () => { open(node.inner, !opened.has(node.inner)); choose(name, { move: false }); });
      parts.push(button);
    }
    neighbors(parts, name);
    panel.replaceChildren(...parts);
    panel.hidden = false;
    panel.scrollTop = 0;
  }

  function operator(parts, found) {
    parts.push(html("p", {}, `operator ${found.number} of block ${found.block}`));
    if (found.note) parts.push(html("p", {}, found.note));
    for (const [title, slots] of [["inputs", found.inputs], ["outputs", found.outputs]]) {
      const rows = slots.flatMap(([slot, names]) => names.map((number) => variable(slot, number)));
      if (rows.length) parts.push(html("h3", {}, title), table(rows));
    }
    if (found.attributes.length) parts.push(html("h3", {}, "attributes"), table(found.attributes.map(([name, value]) => [name, html("span", { class: "long" }, value)])));
    if (found.made) parts.push(html("h3", {}, "made at"), html("p", {}, found.made));
  }

  function variable(slot, number) {
    const [name, type, statistics] = variables[number];
    const cell = html("span", { class: "long" }, name, html("br"), html("span", { class: "type" }, type));
    for (const line of statistics) cell.append(html("br"), html("span", { class: "type" }, line));
    return [slot, cell];
  }

  const table = (rows) => html("table", {}, html("tbody", {}, ...rows.map(([name, value]) => html("tr", {}, html("th", { scope: "row" }, name), html("td", {}, value)))));

  function neighbors(parts, name) {
    const [number, at] = name.split(".").map(Number);
    for (const [title, found] of [["comes from", sources(number, at)], ["goes to", targets(number, at)]]) {
      if (!found.length) continue;
      parts.push(html("h3", {}, title));
      for (const each of found) {
        const button = html("button", { type: "button", class: "link" }, pictures[number].nodes[each].title);
        button.addEventListener("click", () => choose(key(number, each), { center: true }));
        parts.push(html("p", {}, button));
      }
    }
  }
  const unique = (numbers) => [...new Set(numbers)].sort((one, other) => one - other);
  const sources = (number, at) => unique(pictures[number].links.filter((link) => link.targets.includes(at)).map((link) => link.source));
  const targets = (number, at) => unique(pictures[number].links.filter((link) => link.source === at).flatMap((link) => link.targets));

  // ---- marks: what is chosen, what was found
  function mark() {
    const found = new Set(results.map(shownAs));
    for (const [name, { element }] of drawn) {
      element.classList.toggle("chosen", name === chosen);
      element.classList.toggle("found", found.has(name));
    }
    for (const each of canvas.querySelectorAll(".line")) {
      const near = chosen !== null && (each.dataset.from === chosen || each.dataset.to === chosen);
      each.classList.toggle("near", near);
      if (each.whole) each.setAttribute("d", near ? each.whole() : each.own);
    }
  }
  // A result in a folded group is shown as the group.
  function shownAs(name) {
    while (!drawn.has(name)) {
      const owner = around.get(Number(name.split(".")[0]));
      if (!owner) return name;
      name = key(...owner);
    }
    return name;
  }

  // ---- search
  function texts(node) {
    if (node.operator === undefined) return [node.title, ...(node.variable === undefined ? [] : [variables[node.variable][0]])];
    const found = operators[node.operator];
    const names = [...found.inputs, ...found.outputs].flatMap(([, numbers]) => numbers.map((number) => variables[number][0]));
    return [found.type, `#${found.number}`, ...names];
  }
  function search(text) {
    const wanted = text.trim().toLowerCase();
    results = [];
    result = -1;
    if (wanted) pictures.forEach((picture, number) => picture.nodes.forEach((node, at) => {
      if (node.kind !== "group" && node.kind !== "outer" && texts(node).some((each) => each.toLowerCase().includes(wanted))) results.push(key(number, at));
    }));
    $("count").textContent = wanted ? `${results.length} found` : "";
    canvas.dataset.found = wanted ? results.length : "";
    mark();
  }
  function next(step) {
    if (!results.length) return;
    result = (result + step + results.length) % results.length;
    $("count").textContent = `${result + 1} of ${results.length}`;
    if (!drawn.has(results[result])) { openTo(results[result]); draw(); foldable(); }
    choose(results[result], { center: true });
  }

  // ---- the legend
  function legend() {
    const figures = coloring >= 0;
    const rows = figures ? colorings[coloring].legend : data.kinds.map((kind) => [`k-${kind}`, kind]);
    $("legend").replaceChildren(...rows.map(([css, text]) => {
      const parts = [svg("rect", { class: "card", x: 0.5, y: 0.5, width: 11, height: 11, rx: 3 })];
      if (!figures) parts.push(svg("rect", { class: "stripe", x: 0, y: 1, width: 4, height: 10, rx: 2 }));
      return html("span", {}, svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("g", { class: `node ${css}` }, ...parts)), text);
    }));
    $("legend").classList.toggle("figures", figures);
    canvas.classList.toggle("colored", coloring >= 0);
    $("legend").classList.toggle("colored", coloring >= 0);
    $("legend").hidden = !rows.length;
  }

  // ---- what the user does
  const pointers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const others = [...pointers].filter(([id]) => id !== event.pointerId);
    moved += Math.hypot(event.clientX - before[0], event.clientY - before[1]);
    if (moved > 4) { canvas.setPointerCapture(event.pointerId); canvas.classList.add("moving"); }
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
    if (others.length) {
      const [x, y] = others[0][1], box = canvas.getBoundingClientRect();
      const far = Math.hypot(event.clientX - x, event.clientY - y), was = Math.hypot(before[0] - x, before[1] - y);
      if (was) zoom(far / was, (event.clientX + x) / 2 - box.left, (event.clientY + y) / 2 - box.top);
    } else {
      view.x += event.clientX - before[0];
      view.y += event.clientY - before[1];
      show();
    }
  });
  for (const over of ["pointerup", "pointercancel"]) canvas.addEventListener(over, (event) => { pointers.delete(event.pointerId); canvas.classList.remove("moving"); });
  canvas.addEventListener("click", (event) => {
    if (moved > 4) return;
    const element = event.target.closest(".node");
    if (!element) { choose(null); return; }
    const node = nodeOf(element.dataset.key);
    if (event.target.closest(".fold")) open(node.inner, !opened.has(node.inner));
    else choose(element.dataset.key, { move: false });
  });
  canvas.addEventListener("dblclick", (event) => {
    const element = event.target.closest(".node");
    const node = element && nodeOf(element.dataset.key);
    if (node && node.inner !== undefined) open(node.inner, !opened.has(node.inner));
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = canvas.getBoundingClientRect(), step = event.deltaMode ? 20 : 1;
    if (event.ctrlKey || !event.shiftKey) zoom(Math.exp(-event.deltaY * step * (event.ctrlKey ? 0.01 : 0.0015)), event.clientX - box.left, event.clientY - box.top);
    else { view.x -= (event.deltaX || event.deltaY) * step; show(); }
  }, { passive: false });

  function step(direction) {
    if (chosen === null || !drawn.has(chosen)) return pan(direction);
    const [number, at] = chosen.split(".").map(Number), picture = pictures[number];
    const rank = picture.ranks[picture.rankOf[at]].filter((item) => item < picture.nodes.length);
    const place = rank.indexOf(at);
    const to = { ArrowUp: sources(number, at)[0], ArrowDown: targets(number, at)[0], ArrowLeft: rank[place - 1], ArrowRight: rank[place + 1] }[direction];
    if (to !== undefined) choose(key(number, to));
    return undefined;
  }
  function pan(direction) {
    view.x += { ArrowLeft: 60, ArrowRight: -60 }[direction] || 0;
    view.y += { ArrowUp: 60, ArrowDown: -60 }[direction] || 0;
    show();
  }
  function enter() {
    const node = chosen === null ? null : nodeOf(chosen);
    if (node && node.inner !== undefined) open(node.inner, !opened.has(node.inner));
    else if (chosen === null && pictures[0].nodes.length) choose(key(0, pictures[0].ranks[0][0]));
  }
  const KEYS = {
    "/": () => $("search").focus(), "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), 0: fit, o: () => openAll(true), f: () => openAll(false),
    "?": () => $("keys").showModal(), Enter: enter, ArrowUp: step, ArrowDown: step, ArrowLeft: step, ArrowRight: step,
    Escape: () => (chosen === null ? clear() : choose(null)),
  };
  function clear() {
    $("search").value = "";
    search("");
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
    if (event.target.closest("input, select")) {
      if (event.key === "Escape") { clear(); canvas.focus(); }
      return;
    }
    if (event.key === "Enter" && event.target.closest("button")) return;
    if (!KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key](event.key);
  });
  $("search").addEventListener("input", (event) => search(event.target.value));
  $("find").addEventListener("submit", (event) => { event.preventDefault(); next(1); });
  $("in").addEventListener("click", () => zoom(1.25));
  $("out").addEventListener("click", () => zoom(0.8));
  $("fit").addEventListener("click", fit);
  $("fold").addEventListener("click", () => openAll(!opened.size));
  $("help").addEventListener("click", () => $("keys").showModal());
  $("by").append(...["kind", ...colorings.map((each) => each.by)].map((by) => html("option", {}, by)));
  $("by").selectedIndex = coloring + 1;
  $("colors").hidden = !colorings.length;
  $("by").addEventListener("change", (event) => { coloring = event.target.selectedIndex - 1; draw(); legend(); });

  // ---- what the address asks for: #search=conv, #operator=0.12 (block and number), #open
  function address() {
    const asked = new URLSearchParams(location.hash.slice(1));
    if (asked.has("open")) openAll(true);
    if (asked.has("search")) { $("search").value = asked.get("search"); search(asked.get("search")); next(1); }
    if (asked.has("operator")) {
      const at = operators.findIndex((each) => `${each.block}.${each.number}` === asked.get("operator"));
      pictures.forEach((picture, number) => picture.nodes.forEach((node, position) => {
        if (at >= 0 && node.operator === at) { openTo(key(number, position)); draw(); foldable(); choose(key(number, position), { center: true }); }
      }));
    }
  }

  draw();
  legend();
  foldable();
  begin();
  address();
  window.addEventListener("hashchange", address);
  document.body.dataset.ready = "yes";
})();

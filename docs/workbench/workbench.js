// The workbench: exercises, any derivative of the library, and a Transformer of one's own, with Python in a worker.
"use strict";
(() => {
  const place = document.getElementById("workbench");
  const language = document.documentElement.lang === "ko" ? "ko" : "en";
  const here = document.currentScript.src.replace(/[^/]*$/, "");
  const WORDS = {
    en: {
      loading: "Python is loading: {} of {} files",
      starting: "Python is starting",
      ready: "{} is ready, in this page; it works without a network from now on.",
      unkept: "{} is ready, in this page.",
      failed: "Python could not be started: {}",
      none: "This copy of the site was built without Python. `make docs` adds it.",
      disk: "A page from the disk may not start Python. Serve the site's folder: python -m http.server",
      check: "Check", hint: "Hint", solution: "Solution", over: "Start over", stop: "Stop",
      checking: "Checking …", waiting: "Python is still loading. Your answer is checked as soon as it is there.",
      stopped: "Stopped. Python starts again.",
      sure: "Delete what you wrote and start over?",
      solved: "Solved: {} of {}.", again: "Try again; a hint helps.", next: "Next: {}", derivation: "Our own derivation",
      printed: "Your code printed:",
      exercises: "Exercises", train: "Your own Transformer", ops: "Change a derivative",
      editor: "Your code. Tab indents; Escape, then Tab leaves the editor.", leave: "Ctrl + Enter checks. Escape, then Tab leaves the editor.",
      forward: "The forward", red: "Wrong: {} of {}.", green: "All right: {}.",
      about_op: "This is {}'s backward as the library has it. Change something, and check: each row compares it with a finite difference in float64.",
      about_train: "Every exercise that you have solved is put into its place in transformer.py. It learns to translate English numbers into Korean: 500 steps of 32 numbers (64 in the file), some minutes in a browser.",
      train_now: "Train", training: "Training …", step: "step {} of 500", no: "none", asking: "Trained. It answers numbers that it has never seen …",
      ask: "A number from 1 to 999,999", translate: "Translate",
      looked: "Where each Korean token looked:",
      notebooks: "The articles, cell by cell",
      about_notebook: "The notebook of this article. Its cells run in this page, in their order; change one, and run it again. What you changed stays in your browser. The output that you see first was stored before.",
      run: "Run", restore: "Restore", all: "Run all", running: "Running …", drawing: "What draws pictures is loading: {} of {} files",
      elsewhere: "This cell is not run here: it trains a model with packages that no browser has, or uses what such a cell made. Its stored output:",
      minutes: "Run all leaves this cell out: it takes about {} minutes here. Its own button runs it. Its stored output:",
      at: "line {}: {}", edit: "Code of cell {}",
    },
    ko: {
      loading: "파이썬을 불러오는 중: 파일 {}/{}",
      starting: "파이썬을 시작하는 중",
      ready: "{} 준비됨. 이 페이지 안에서 실행되며, 이제부터 네트워크 없이도 쓸 수 있습니다.",
      unkept: "{} 준비됨. 이 페이지 안에서 실행됩니다.",
      failed: "파이썬을 시작하지 못했습니다: {}",
      none: "이 사이트는 파이썬 없이 만들어졌습니다. `make docs`로 넣을 수 있습니다.",
      disk: "디스크에서 연 페이지에서는 파이썬을 시작할 수 없습니다. 사이트 폴더에서 서버를 켜세요: python -m http.server",
      check: "확인", hint: "힌트", solution: "풀이", over: "처음부터", stop: "멈추기",
      checking: "확인하는 중 …", waiting: "파이썬을 아직 불러오고 있습니다. 준비되면 바로 확인합니다.",
      stopped: "멈췄습니다. 파이썬을 다시 시작합니다.",
      sure: "쓴 것을 지우고 처음부터 다시 할까요?",
      solved: "{}/{}개를 풀었습니다.", again: "다시 해 보세요. 힌트가 도움이 됩니다.", next: "다음: {}", derivation: "유도 과정 보기",
      printed: "코드가 출력한 것:",
      exercises: "연습 문제", train: "내가 만든 트랜스포머", ops: "미분 바꿔 보기",
      editor: "코드. Tab은 들여쓰기이고, Esc를 누른 뒤 Tab을 누르면 편집기에서 나갑니다.", leave: "Ctrl + Enter로 확인합니다. Esc를 누른 뒤 Tab을 누르면 편집기에서 나갑니다.",
      forward: "순전파", red: "틀렸습니다: {}/{}줄.", green: "모두 맞습니다: {}줄.",
      about_op: "라이브러리에 있는 {}의 역전파입니다. 한 곳을 바꾸고 확인해 보세요. 줄마다 float64의 유한 차분과 비교합니다.",
      about_train: "푼 연습 문제의 함수를 모두 transformer.py의 제자리에 넣고 학습합니다. 영어 수를 한국어로 옮기는 법을 배웁니다. 수 32개씩(파일에서는 64개씩) 500스텝이고, 브라우저에서 몇 분 걸립니다.",
      train_now: "학습하기", training: "학습하는 중 …", step: "{}/500스텝", no: "없음", asking: "학습이 끝났습니다. 처음 보는 수에 답하는 중 …",
      ask: "1부터 999,999까지의 수", translate: "옮기기",
      looked: "한국어 토큰이 본 곳:",
      notebooks: "글을 셀 단위로",
      about_notebook: "이 글의 노트북입니다. 셀은 이 페이지 안에서 차례대로 실행됩니다. 고쳐서 다시 실행해 보세요. 고친 것은 브라우저에 남습니다. 처음에 보이는 출력은 미리 저장해 둔 것입니다.",
      run: "실행", restore: "되돌리기", all: "모두 실행", running: "실행하는 중 …", drawing: "그림 그리는 패키지를 불러오는 중: 파일 {}/{}",
      elsewhere: "이 셀은 여기서 실행하지 않습니다. 브라우저에 없는 패키지로 모델을 학습하거나, 그런 셀의 결과를 씁니다. 저장해 둔 출력입니다.",
      minutes: "모두 실행할 때는 이 셀을 건너뜁니다. 여기서는 {}분쯤 걸립니다. 셀의 버튼으로 실행할 수 있습니다. 저장해 둔 출력입니다.",
      at: "{}행: {}", edit: "{}번 셀의 코드",
    },
  }[language];
  const say = (name, ...values) => values.reduce((text, value) => text.replace("{}", value), WORDS[name]);

  /** An element: its tag, its properties, its content. */
  function h(tag, properties, ...content) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...content);
    return element;
  }

  // ---- What the learner has done, kept by the browser
  const KEY = "pellucid.workbench";
  const progress = { answers: {}, solved: {}, hints: {}, cells: {}, ...read() };
  function read() {
    try {
      return JSON.parse(localStorage.getItem(KEY) ?? "{}");
    } catch {
      return {}; // a browser that keeps nothing, or something else under our name
    }
  }
  function keep() {
    try {
      localStorage.setItem(KEY, JSON.stringify(progress));
    } catch {
      // the page works without
    }
  }

  // ---- Python
  const WORKER = new URL("worker.js", location.href).href; // in the page's folder, as the service worker that keeps it
  const state = h("p", { className: "wb-state" });
  state.setAttribute("role", "status");
  let worker, ready, course, calls = new Map(), count = 0, listen = null;
  function begin() {
    worker = new Worker(WORKER);
    worker.onerror = () => end(new Error(WORKER));
    worker.onmessage = ({ data }) => {
      if (data.loaded && place.dataset.ready) listen?.(data);
      else if (data.loaded) state.textContent = data.loaded < data.of ? say("loading", data.loaded, data.of) : say("starting");
      else if (data.line !== undefined) listen?.(data.line);
      else {
        const { done, fail } = calls.get(data.id);
        calls.delete(data.id);
        if ("error" in data) fail(new Error(data.error));
        else done(data.result);
      }
    };
    state.textContent = say("starting");
    ready = send("start", { runtime: course.runtime, library: course.library });
    ready.then(
      (about) => {
        state.textContent = say(navigator.serviceWorker ? "ready" : "unkept", about);
        place.dataset.ready = about;
        offline();
      },
      (error) => {
        state.textContent = say("failed", error.message);
        place.dataset.failed = error.message;
      },
    );
  }
  function send(ask, ...given) {
    return new Promise((done, fail) => {
      calls.set(++count, { done, fail });
      worker.postMessage({ id: count, ask, given });
    });
  }
  async function call(...what) {
    await ready;
    return JSON.parse(await send(...what));
  }
  /** End Python, whatever it does, and start it anew. */
  function stop() {
    worker.terminate();
    end(new Error(say("stopped")));
    delete place.dataset.ready;
    begin();
  }
  function end(error) {
    const open = calls;
    calls = new Map();
    for (const { fail } of open.values()) fail(error);
  }
  async function offline() {
    if (!navigator.serviceWorker) return;
    const folder = new URL("./", location.href).href;
    const registered = await navigator.serviceWorker.register(`${folder}offline.js`).catch(() => null);
    if (!registered) return;
    await navigator.serviceWorker.ready;
    const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
    const own = [...loaded, WORKER].filter((url) => url.startsWith(location.origin) && !url.endsWith("offline.js"));
    registered.active?.postMessage([location.href.replace(/#.*/, ""), ...new Set(own)]);
  }

  // ---- The editor: a text area over the same text in colours
  const TOKEN = /(#[^\n]*)|("""[^]*?(?:"""|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|\b(False|None|True|and|as|assert|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)\b|\b(\d[\w.]*)/g;
  function coloured(code) {
    const parts = [];
    let from = 0;
    for (const found of code.matchAll(TOKEN)) {
      const kind = ["c", "s", "k", "n"][found.slice(1).findIndex((group) => group !== undefined)];
      parts.push(code.slice(from, found.index), h("span", { className: kind }, found[0]));
      from = found.index + found[0].length;
    }
    return [...parts, code.slice(from), "\n"];
  }
  function editor(code, changed, run) {
    const shown = h("pre", { ariaHidden: "true" });
    const numbers = h("pre", { className: "wb-numbers", ariaHidden: "true" });
    const area = h("textarea", { value: code, spellcheck: false, autocapitalize: "off", wrap: "off", ariaLabel: say("editor") });
    area.setAttribute("autocorrect", "off");
    area.setAttribute("autocomplete", "off");
    const mark = h("div", { className: "wb-mark", hidden: true });
    const draw = () => {
      shown.replaceChildren(...coloured(area.value));
      numbers.textContent = area.value.split("\n").map((_, i) => i + 1).join("\n");
      mark.hidden = true;
    };
    const insert = (text) => document.execCommand("insertText", false, text);
    let leaving = false;
    area.oninput = () => {
      draw();
      changed(area.value);
    };
    area.onkeydown = (event) => {
      const { value, selectionStart: start, selectionEnd: end } = area;
      const first = value.lastIndexOf("\n", start - 1) + 1;
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        run();
      } else if (event.key === "Enter" && !event.isComposing) {
        const line = value.slice(first, start);
        event.preventDefault();
        insert(`\n${line.match(/^ */)[0]}${/:\s*(#.*)?$/.test(line) ? "    " : ""}`);
      } else if (event.key === "Tab" && !leaving) {
        event.preventDefault();
        if (start === end && !event.shiftKey) insert(" ".repeat(4 - ((start - first) % 4)));
        else {
          const last = value.indexOf("\n", Math.max(start, end - 1));
          area.setSelectionRange(first, last < 0 ? value.length : last);
          const lines = value.slice(first, last < 0 ? undefined : last);
          insert(event.shiftKey ? lines.replace(/^ {1,4}/gm, "") : lines.replace(/^(?=.)/gm, "    "));
          area.setSelectionRange(first, area.selectionEnd);
        }
      } else if (event.key === "Backspace" && start === end && start > first && (start - first) % 4 === 0) {
        if (!value.slice(first, start).trim()) {
          event.preventDefault();
          area.setSelectionRange(start - 4, start);
          document.execCommand("delete");
        }
      }
      leaving = event.key === "Escape" || (leaving && event.key === "Shift");
    };
    draw();
    return {
      area,
      box: h("div", { className: "wb-editor" }, numbers, h("div", { className: "wb-code" }, mark, shown, area)),
      point: (line) => {
        mark.hidden = !line;
        mark.style.top = `${1.5 * (line - 1)}em`;
      },
    };
  }

  // ---- What was found
  /** Run something and show what it returns; Stop ends it. */
  async function busy(buttons, said, text, work) {
    const end = h("button", { type: "button", onclick: stop }, say("stop"));
    for (const button of buttons.querySelectorAll("button")) button.disabled = true;
    buttons.append(end);
    place.dataset.busy = "true";
    said.replaceChildren(h("p", {}, place.dataset.ready ? text : say("waiting")));
    ready.then(() => said.firstChild && said.firstChild.textContent === say("waiting") && (said.firstChild.textContent = text), () => {});
    try {
      await work();
    } catch (error) {
      said.replaceChildren(h("p", { className: "wrong" }, error.message));
    }
    end.remove();
    for (const button of buttons.querySelectorAll("button")) button.disabled = false;
    delete place.dataset.busy;
  }
  const marked = ({ lines, marks }) =>
    lines.map((line, i) => h("p", { className: marks[i] ? "right" : "wrong" }, line));
  const printed = (text) => (text ? [h("p", {}, say("printed")), h("pre", {}, text)] : []);
  const button = (name, onclick, className = "") => h("button", { type: "button", onclick, className }, say(name));
  const panel = () => {
    const said = h("div", { className: "wb-said" });
    said.setAttribute("role", "status");
    return said;
  };

  // ---- One exercise
  const number = (name) => course.exercises.findIndex((one) => one.name === name) + 1;
  const text = (one) => progress.answers[one.name] ?? one.page[language];
  const answers = () => JSON.stringify(Object.fromEntries(course.exercises.map((one) => [one.name, text(one)])));

  function exercise(one) {
    const said = panel(), helped = h("div", { className: "wb-help" }), buttons = h("div", { className: "wb-buttons" });
    const code = editor(
      text(one),
      (value) => {
        progress.answers[one.name] = value;
        keep();
      },
      check,
    );
    function check() {
      if (place.dataset.busy) return;
      busy(buttons, said, say("checking"), async () => {
        const found = await call("check", one.name, answers(), language);
        progress.solved[one.name] = found.solved;
        keep();
        const after = found.solved
          ? h("p", {}, `${standing()} `, ...onward(one))
          : h("p", {}, say("again"));
        said.replaceChildren(...marked(found), ...printed(found.printed), after);
        code.point(found.line);
        said.scrollIntoView({ block: "nearest" });
        list();
      });
    }
    function hints() {
      const shown = one.hints[language].slice(0, progress.hints[one.name] ?? 0);
      helped.replaceChildren(h("ol", {}, ...shown.map((hint) => h("li", {}, hint))));
      helped.hidden = !shown.length;
    }
    buttons.append(
      button("check", check, "wb-first"),
      button("hint", () => {
        progress.hints[one.name] = Math.min((progress.hints[one.name] ?? 0) + 1, one.hints[language].length);
        keep();
        hints();
      }),
      button("solution", () => helped.replaceChildren(h("pre", {}, ...coloured(one.solution))) ?? (helped.hidden = false)),
      button("over", () => {
        if (progress.answers[one.name] !== undefined && !confirm(say("sure"))) return;
        delete progress.answers[one.name];
        keep();
        show();
      }),
    );
    hints();
    return [
      h("h2", {}, `${number(one.name)}. ${one.title[language]}`),
      h("pre", { className: "wb-equation" }, one.equation),
      code.box,
      h("p", { className: "wb-keys" }, say("leave")),
      buttons,
      helped,
      said,
    ];
  }
  const standing = () =>
    say("solved", course.exercises.filter((one) => progress.solved[one.name]).length, course.exercises.length);
  function onward(one) {
    const left = course.exercises.find((other) => !progress.solved[other.name]);
    const target = left ? `#exercise=${left.name}` : "#own=transformer";
    return [
      h("a", { href: target }, say("next", left ? left.title[language] : say("train"))),
      " · ",
      h("a", { href: `../explain/${one.topic}.html` }, say("derivation")),
    ];
  }

  // ---- A derivative of the library, changed
  function op(name) {
    const { forward, backward } = course.ops[name];
    const said = panel(), buttons = h("div", { className: "wb-buttons" });
    const code = editor(backward, () => {}, check);
    function check() {
      if (place.dataset.busy) return;
      busy(buttons, said, say("checking"), async () => {
        const found = await call("change", name, code.area.value, language);
        const wrong = found.marks.filter((mark) => !mark).length;
        const sum = wrong ? say("red", wrong, found.marks.length) : say("green", found.marks.length);
        said.replaceChildren(h("p", { className: `wb-sum ${wrong ? "wrong" : "right"}` }, sum), ...marked(found));
        code.point(found.line);
        said.scrollIntoView({ block: "nearest" });
      });
    }
    buttons.append(button("check", check, "wb-first"), button("over", show));
    return [
      h("h2", {}, name),
      h("p", {}, say("about_op", name)),
      h("details", {}, h("summary", {}, say("forward")), h("pre", {}, ...coloured(forward))),
      code.box,
      h("p", { className: "wb-keys" }, say("leave")),
      buttons,
      said,
    ];
  }

  // ---- A Transformer of one's own
  function train() {
    const said = panel(), asked = h("div", {}), buttons = h("div", { className: "wb-buttons" });
    const run = () =>
      busy(buttons, said, say("training"), async () => {
        asked.replaceChildren();
        const step = h("p", {}, say("training"));
        const lines = h("pre", {});
        await ready;
        said.replaceChildren(lines, step);
        listen = (line) => {
          const at = line.match(/^step (\d+) /);
          if (at) step.textContent = `${say("step", at[1])}, ${line.slice(at[0].length).trim()}`;
          else {
            if (step.textContent !== say("training")) step.textContent = say("asking");
            lines.append(`${line}\n`);
          }
        };
        await call("train", answers(), language);
        listen = null;
        step.remove();
        asked.replaceChildren(...question());
      });
    function question() {
      const input = h("input", { type: "number", min: 1, max: 999_999, value: 456_788, required: true });
      const out = panel();
      const form = h("form", { className: "wb-buttons" }, h("label", {}, `${say("ask")} `, input), h("button", {}, say("translate")));
      form.onsubmit = async (event) => {
        event.preventDefault();
        try {
          const { english, answer, right, looked } = await call("ask", Number(input.value));
          out.replaceChildren(
            h("p", { className: right ? "right" : "wrong" }, `${english} → ${answer}`),
            h("p", {}, say("looked")),
            h("pre", {}, looked),
          );
        } catch (error) {
          out.replaceChildren(h("p", { className: "wrong" }, error.message));
        }
      };
      return [form, out];
    }
    buttons.append(button("train_now", run, "wb-first"));
    const yours = course.exercises.filter((one) => progress.solved[one.name]).map((one) => one.name);
    return [
      h("h2", {}, say("train")),
      h("p", {}, say("about_train")),
      h("p", {}, standing(), " ", h("code", {}, yours.join(", ") || say("no"))),
      buttons,
      said,
      asked,
    ];
  }

  // ---- An article's notebook
  function notebook(name) {
    const { title, address } = course.notebooks[name][language];
    const cells = h("div", {}), buttons = h("div", { className: "wb-buttons" }), runs = [];
    const notebook = `${name}.${language}`, changed = () => progress.cells[notebook] ?? {}; // by the cells' own code
    function change(source, value) {
      const { [source]: _, ...others } = changed();
      progress.cells[notebook] = value === source ? others : { ...others, [source]: value };
      keep();
    }
    const output = (printed, pictures) => {
      const names = [...printed.matchAll(/^\S+: .*?([\w.-]+)\.(?:png|svg)$/gm)].map((found) => found[1]);
      const drawn = pictures.map((data, i) => h("img", { src: data, alt: names[i] ?? "" }));
      return [...(printed ? [h("pre", {}, printed)] : []), ...drawn];
    };
    function code({ source, printed, pictures, minutes }) {
      const said = panel(), own = h("div", { className: "wb-buttons" }), number = runs.length;
      const restore = button("restore", () => {
        box.area.value = source;
        box.area.dispatchEvent(new Event("input"));
        box.area.focus();
      });
      restore.hidden = !(source in changed());
      const box = editor(
        changed()[source] ?? source,
        (value) => {
          change(source, value);
          restore.hidden = value === source;
        },
        () => run(),
      );
      const cell = h("div", { className: "wb-cell" }, box.box, own, said);
      const stored = (...note) => said.replaceChildren(...note, ...output(printed, pictures));
      box.area.ariaLabel = say("edit", number + 1);
      async function run(anew = false, all = false) {
        if (place.dataset.busy) return;
        if (all && minutes) {
          cell.dataset.state = "minutes";
          return stored(h("p", {}, say("minutes", minutes)));
        }
        cell.dataset.state = "wrong"; // unless it ends
        await busy(own, said, say("running"), async () => {
          listen = ({ loaded, of }) => (said.textContent = say(loaded < of ? "drawing" : "running", loaded, of));
          const found = await call("cell", name, box.area.value, language, anew).finally(() => (listen = null));
          cell.dataset.state = found.elsewhere ? "elsewhere" : found.error ? "wrong" : "right";
          if (found.elsewhere) return stored(h("p", {}, say("elsewhere")));
          said.replaceChildren(...output(found.printed, found.pictures));
          if (found.error) said.append(h("p", { className: "wrong" }, found.line ? say("at", found.line, found.error) : found.error));
          box.point(found.line);
        });
      }
      own.append(button("run", () => run()), restore);
      runs.push(async (first) => {
        await run(first, true);
        return cell.dataset.state;
      });
      stored();
      return cell;
    }
    async function all() {
      cells.dataset.running = "true";
      for (const [i, run] of runs.entries()) if ((await run(i === 0)) === "wrong") break;
      delete cells.dataset.running;
    }
    const over = () => {
      if (Object.keys(changed()).length && !confirm(say("sure"))) return;
      delete progress.cells[notebook];
      keep();
      show();
    };
    buttons.append(button("all", all, "wb-first"), button("over", over));
    fetch(new URL(address, here))
      .then((response) => response.json())
      .then((made) => cells.replaceChildren(...made.map((cell) => (cell.html ? h("div", { innerHTML: cell.html }) : code(cell)))))
      .catch((error) => cells.replaceChildren(h("p", { className: "wrong" }, error.message)));
    return [h("h2", {}, title), h("p", {}, say("about_notebook")), buttons, cells];
  }

  // ---- The page
  const contents = h("nav", { className: "wb-list", ariaLabel: say("exercises") });
  const main = h("section", { className: "wb-main" });
  function chosen() {
    const [kind, name] = location.hash.slice(1).split("=");
    if (kind === "op" && course.ops[name]) return { kind, name };
    if (kind === "own") return { kind: "train" };
    if (kind === "article" && course.notebooks[name]) return { kind, name };
    const first = course.exercises.find((one) => !progress.solved[one.name]) ?? course.exercises[0];
    return { kind: "exercise", name: course.exercises.some((one) => one.name === name) ? name : first.name };
  }
  function list() {
    const { kind, name } = chosen();
    const link = (href, text, current, done) => {
      const a = h("a", { href, className: done ? "done" : "" }, text);
      if (current) a.setAttribute("aria-current", "page");
      return h("li", {}, a);
    };
    const articles = Object.entries(course.notebooks).map(([each, { [language]: { title } }]) =>
      link(`#article=${each}`, title, kind === "article" && each === name),
    );
    const ops = h(
      "select",
      { ariaLabel: say("ops"), onchange: () => (location.hash = `op=${ops.value}`) },
      h("option", { value: "", disabled: true }, say("ops")),
      ...Object.keys(course.ops).map((each) => h("option", { value: each }, each)),
    );
    ops.value = kind === "op" ? name : "";
    const open = contents.firstChild?.open ?? matchMedia("(min-width: 60em)").matches;
    contents.replaceChildren(
      h(
        "details",
        { open },
        h("summary", {}, `${say("exercises")} · ${standing()}`),
        h(
          "ol",
          {},
          ...course.exercises.map((one) =>
            link(`#exercise=${one.name}`, one.title[language], one.name === name && kind === "exercise", progress.solved[one.name]),
          ),
        ),
        h("ul", {}, link("#own=transformer", say("train"), kind === "train"), h("li", {}, ops)),
        h("p", {}, say("notebooks")),
        h("ul", {}, ...articles),
      ),
    );
  }
  function show() {
    const { kind, name } = chosen();
    if (listen) stop(); // a training that nobody sees would keep Python from everything else
    listen = null;
    list();
    const views = { op: () => op(name), train, article: () => notebook(name), exercise: () => exercise(course.exercises[number(name) - 1]) };
    main.replaceChildren(...views[kind]());
    delete place.dataset.busy;
  }
  async function open() {
    if (location.protocol === "file:") return place.replaceChildren(h("p", {}, say("disk")));
    course = await (await fetch(`${here}course.json`)).json();
    place.replaceChildren(contents, h("div", { className: "wb-side" }, state, main));
    addEventListener("hashchange", show);
    show();
    if (!course.runtime) return (state.textContent = say("none"));
    for (const part of [course.runtime, course.library]) part.address = new URL(part.address, here).href;
    begin();
  }
  open();
})();

// Every word the page shows, in English and in Korean: one table, complete by its type.

export type Language = "en" | "ko";

const en = {
  languageName: "한국어",
  kinds: {
    encoder: "Encoder self-attention",
    decoder: "Decoder self-attention",
    cross: "Cross-attention",
  },
  shortKinds: { encoder: "Encoder self", decoder: "Decoder self", cross: "Cross" },
  theme: (name: string) => `Theme: ${name}`,
  themes: { auto: "auto", light: "light", dark: "dark" },
  keys: "Keys",
  close: "Close",
  keyHelp: [
    ["Tab", "to the next part; arrow keys move inside it"],
    ["arrow keys", "in a map: to another query or key; in the overview: to another head"],
    ["[ ]", "in a map: the head before, the next head"],
    ["{ }", "in a map: the layer before, the next layer"],
    ["+ − 0", "in a map: larger, smaller, as it opened"],
  ],
  views: "Views",
  viewsAndHeads: "Views and heads",
  headsAndScale: "Heads and scale",
  tabs: {
    whole: "Model",
    attention: "Attention",
    steps: "Step by step",
    backward: "Backward",
    generation: "Generation",
    run: "Try it",
  },
  guesses: "Guesses",
  label: "Label",
  kindOfAttention: "Kind of attention",
  layer: "layer",
  head: "head",
  layerAndHead: (layer: number, head: number) => `layer ${layer}, head ${head}`,
  nothing: "This file holds no attention that this page can show.",
  footer: (off: string) =>
    "Computed on this page from the queries, keys and values of the model; weights differ from " +
    `the library’s by at most ${off}.`,
  offline: "This file makes no network request.",
  asks: "It asks its own server for records, and nobody else for anything.",
  live: {
    name: "Type and see",
    text: "Text",
    model: "model",
    beam: "beam",
    temperature: "temperature",
    show: "Show",
    wait: "Running the model …",
    failed: (status: number) => `The server answered with status ${status}.`,
    unreachable: "The server does not answer. Is `pellucid serve` still running?",
    kinds: {
      translate: "The model translates your text. Temperature above 0 draws the answer at random.",
      chat: "The model answers your text. Temperature above 0 draws the answer at random.",
      pronounce: "The model pronounces a word. Temperature above 0 draws the answer at random.",
      continue: "The model continues your text. Temperature above 0 draws it at random.",
      fill: "Write [MASK] where the model should guess.",
      label: "The model gives your text a label.",
    } as { [kind: string]: string },
  },

  tour: {
    name: "Tour",
    back: "Back",
    next: "Next",
    place: (stop: number, stops: number) => `Stop ${stop} of ${stops}`,
    stops: {
      search: [
        "Searching for dog videos",
        "You type “dog”: that is a query. Every video has a title, its key, and the video itself, " +
          "its value. A search returns the value whose key matches best. Attention does the same, " +
          "but returns a mixture of all values, weighted by how well their keys match.",
      ],
      tokens: [
        "Tokens ask tokens",
        "Here the queries are the tokens on the left and the keys those on the right. The thicker " +
          "a line, the larger the weight. Choose a token to see what it attends to.",
      ],
      score: [
        "A score is a dot product",
        "Query and key are vectors. Multiplied entry by entry and added up they give one number: " +
          "large where both point the same way.",
      ],
      scale: [
        "Why divide by √dₖ?",
        "Here nothing is divided: the scores are multiplied by 1. The standard deviation of q·k " +
          "grows as √dₖ, and large scores let one key win everything. The next stop restores the " +
          "model’s own scale.",
      ],
      softmax: [
        "Softmax turns scores into shares",
        "Each score becomes a power of e, divided by the sum of its row. The shares of a row add " +
          "up to 1.",
      ],
      output: [
        "The output mixes values",
        "Every query gets the sum of all values, each times its weight.",
      ],
      heads: [
        "Many heads, many questions",
        "Each layer does this several times at once, with other queries, keys and values. Short " +
          "bars are heads that attend to few tokens. Choose one.",
      ],
      mask: [
        "Not looking ahead",
        "A decoder predicts the next token, so it may not see it: the keys after each query are " +
          "masked. An encoder reads the whole sentence and masks nothing.",
      ],
      gradient: [
        "Learning: the backward pass",
        "The gradient says how the loss changes with each number. It runs through the same steps " +
          "in reverse; each card has the equation, our code and a finite difference.",
      ],
      answer: [
        "From probabilities to an answer",
        "At each place the model gives every token a probability. Beam search keeps the best few " +
          "beginnings and extends them until the best answer ends.",
      ],
    },
  },
  glossary: {
    nats: "Unit of information with the natural logarithm: 1 nat is 1.44 bits.",
    entropy: "−Σ w log w of a row of weights. e to this power counts the tokens attended to.",
    "∂L/∂X": "Gradient: how fast the loss L grows when the number X grows.",
    gradient: "How fast the loss grows when a number grows.",
    "finite difference": "Move a number by ±ε, compute again, divide the change by 2ε: a gradient without calculus.",
    "√dₖ": "Square root of the width of a head’s queries and keys.",
    softmax: "e to each score, divided by the sum of its row: positive shares that add up to 1.",
    value: "What a token hands on when another attends to it.",
    keys: "What the tokens offer to be found by.",
    logit: "A token’s score before the last softmax.",
    Loss: "Σ −log p of the expected tokens, in nats: 0 if each had probability 1.",
    "best answer": "The hypothesis with the highest score of the search.",
  } as { [term: string]: string },

  allHeads: "All layers × heads",
  allHeadsName: "All layers and heads",
  headList: "Heads of all layers; arrow keys move",
  barMeaning: "Bar = mean entropy. A short bar means the head attends to few tokens.",
  thumbnail: (layer: number, head: number, entropy: string) =>
    `layer ${layer}, head ${head}, entropy ${entropy} nats`,

  oneHead: "One head",
  weights: "Weights",
  weightsW: "Weights W",
  linkedTokens: "Tokens linked by weights",
  secondMap: "Second map",
  matrix: "Matrix",
  lines: "Lines",
  zoom: "Zoom",
  fit: "Fit",
  form: "Form",
  second: "Second map",
  seconds: {
    weights: ["∂L/∂W", "Gradient ∂L/∂W", "gradient of the loss with respect to the weights"],
    scores: ["∂L/∂A", "Gradient ∂L/∂A", "gradient of the loss with respect to the scaled scores"],
    change: ["change", "Change of W", "weights now minus the model’s own"],
    head: ["other head", "Weights of another head", "weights of another head, under the same cursor"],
    other: ["compare", "Weights beside", "weights of the other model or text, under the same cursor"],
  },
  legends: {
    weights: "at the model’s own scale; orange: more weight here, more loss",
    scores: "at the model’s own scale; orange: a higher score here, more loss",
    change: "now minus the model’s own",
  },
  ofSecond: { layer: "layer of map 2", head: "head of map 2" },
  lacksKind: "The other model has no attention of this kind.",
  losses: (here: string, there: string, more: string) =>
    `−log p of the answer: ${here} nats in the first, ${there} in the second (${more})`,
  beside: (query: string, key: string, w: string) => `. Second map: “${query}” → “${key}” ${w}`,
  besideLoss: (here: string, there: string) => `; −log p: ${here} in the first, ${there} in the second`,
  shaded: "1, shaded by √w",
  masked: "masked",
  axes: "rows: queries, columns: keys",
  linesLegend: "left: queries, right: keys; the thicker a line, the larger the weight",
  subtitle: (name: string, entropy: string, count: string, keys: number) =>
    `${name} · entropy ${entropy} nats, as if it attended to ${count} of ${keys} keys`,
  token: (i: number, token: string) => `token ${i} “${token}”`,
  query: (i: number, token: string) => `query ${i} “${token}”`,
  key: (j: number, token: string) => `key ${j} “${token}”`,
  predicting: (token: string) => `, predicting “${token}”,`,
  lookAhead: (query: string, key: string) => `${query} may not look ahead to ${key}: weight 0`,
  tooFar: (query: string, key: string) => `${query} does not see as far as ${key}: weight 0`,
  cell: (query: string, key: string, score: string, scale: string, scaled: string, w: string) =>
    `${query} → ${key}: q·k ${score} × ${scale} = ${scaled} → weight ${w}`,
  matrixRole: "matrix",
  linesRole: "linked tokens",
  below: (n: number, what: string) => `↓ ${n} more ${what}`,
  rowNames: { keys: "keys", queries: "queries", tokens: "tokens" },
  right: (n: number, what: string) => `→ ${n} more ${what}`,
  more: "more",

  scale: "Scale",
  scaleLabel: ["Scores are multiplied by d", ""],
  anyScale: "Any scale",
  usualScales: "Usual scales",
  moreScales: "Other scales",
  or: "or",
  own: "own",
  ownScale: "the model’s own scale",
  noPower: "no such p",
  scaleValue: (p: string, scale: string) => `p = ${p}, scale ${scale}`,
  effect: "What changes in this head",
  now: "now",
  effects: {
    by: "multiplied by",
    entropy: "entropy, nats",
    count: "keys attended to",
    peak: "largest weight, mean of queries",
    change: "largest change",
  },

  stepsTitle: (head: string) => `${head}, step by step`,
  stages: {
    scores: ["Scores", "How well what i asks for matches what j offers."],
    scaled: ["Scaled", "q·k spreads as √dₖ: unscaled, softmax would saturate."],
    masked: ["Masked", "Keys that may not be seen are removed."],
    softmax: ["Softmax", "Scores become shares: each row adds up to 1."],
    output: ["Output", "Each query gets the values, mixed by its shares."],
  },
  ifAhead: "if",
  ahead: "−∞: j is ahead of i",
  far: "−∞: j is too far from i",
  outputRow: (i: number, width: number) => `row ${i}: ${width} numbers`,
  numbersOf: "Numbers of one query",
  everyKey: "Every key of the query",
  queryChoice: "query i",
  keyChoice: "key j",
  columns: ["key", "q·k", "× scale", "masked", "weight w"],
  caption: (i: number, token: string) => `query ${i} “${token}” and every key`,
  scoreAndOutput: "The score and the output",
  scoreAsSum: "The score as a sum of products",
  headOutput: "The output of the head",
  scoreOf: (query: string, key: string) => `Score: q of “${query}” · k of “${key}”`,
  sumIs: (total: string) => `The last row adds up to sᵢⱼ = ${total}; entries are rounded to four digits.`,
  outputOf: (query: string) => `Output of “${query}”: every value times its weight`,
  concatenated:
    "The outputs of all heads are concatenated and multiplied by W_O; that is the layer’s output.",

  whole: {
    name: "The whole model",
    hint:
      "Each token’s residual stream runs from its embedding down to what is predicted, as wide as √‖x‖; " +
      "what each part adds flows into it. Choose a token to follow it, and a part to unfold it: " +
      "shape, parameters and numbers.",
    arcs: "Attention drawn",
    mean: "Mean of heads",
    legend: {
      around: "residual stream, as wide as √‖x‖: four times as long is twice as wide",
      through: "what a network or a position adds, √‖y‖",
      between: "attention from key to query: weights from 10 % and each query’s largest, each its share of √‖y‖",
      cross: "the encoder’s memory, and cross-attention to it",
    },
    stations: { self: "self-attention", cross: "cross-attention", network: "feed-forward" },
    adds: (norm: string) => `adds ‖y‖ ${norm}`,
    attends: (keys: string) => `attends to ${keys}`,
    tokens: { source: "Tokens of the encoder", target: "Tokens of the decoder" },
    stacks: { encoder: "Encoder", decoder: "Decoder" },
    layer: (n: number) => `Layer ${n}`,
    before: "embedding",
    after: "output",
    shape: (letters: string, sizes: string) => `Returns (${letters}) = ${sizes}`,
    times: (factor: string) => `Multiplied by ${factor}.`,
    scale: (factor: string) => `c = ${factor}.`,
    softcap: (most: string) => `Kept within ±${most}: a ← ${most} tanh(a / ${most}).`,
    added: "A number for the distance of query and key is added.",
    window: (reach: number) => `A query sees keys less than ${reach} places away.`,
    given: "in",
    returned: "out",
    norms: "‖row‖",
    gradientNorms: "‖∂L/∂row‖",
    noRows: "This part adds no rows.",
    onlyNorms: (tokens: string) =>
      `To keep this file small it has the rows of these tokens only: ${tokens}. Lengths are of all.`,
    ofHead: (head: number) => `Head ${head}`,
    moreKeys: (n: number) => `… ${n} more keys`,
    predictsNothing: "No expected token follows this one, so no probability was recorded.",
    expects: (token: string, loss: string) => `Expected: “${token}”, −log p = ${loss} nats.`,
    remarks: {
      sinusoidal: "Sines and cosines of the position, not learned.",
      learned: "A learned table has one row for each position.",
      rotary: "Positions are rotary: nothing is added here; queries and keys are rotated instead.",
      causal: "Keys after the query are masked.",
      alibi: "Nothing is added here: scores fall with the distance of query and key (ALiBi).",
      relative: "Nothing is added here: scores get a learned number for each distance (T5).",
      qk_norm: "Each head’s rows are normalised.",
      shared: "Neighbouring query heads share one head of keys and values.",
      swiglu: "Gated: half of the hidden numbers multiply the other half.",
      geglu: "Gated: half of the hidden numbers multiply the other half.",
      geglu_tanh: "Gated: half of the hidden numbers multiply the other half.",
    } as { [kind: string]: string },
    parts: {
      embedding: ["Embedding", "Each token is looked up: its row of a table."],
      positions: ["Position", "Attention has no order of its own, so each place adds a row."],
      segments: ["Segment", "The row of the segment that the token belongs to."],
      sum: ["x₀", "The sum: the row that enters the first layer."],
      norm: ["Norm", "Every row is brought to the same spread, then scaled by γ."],
      queries: ["W_Q", "What the token asks for, for every head."],
      keys: ["W_K", "What the tokens offer to be found by."],
      values: ["W_V", "What the tokens hand on when attended to."],
      scores: ["Scores", "Each query times each key, scaled."],
      softmax: ["Softmax", "Scores become weights: each row adds up to 1."],
      heads: ["W V", "Each head mixes the values by its weights."],
      projection: ["W_O", "The outputs of all heads, side by side, projected back to the width of a row."],
      feed_forward: ["Feed-forward", "Two linear layers with an activation between them, for each token alone."],
      residual: ["+ residual", "What the sublayer returned is added to what it was given."],
      transform: ["Transform", "One more layer before the tokens are predicted."],
      mean: ["Mean", "The rows of all tokens, averaged: one row for the whole text."],
      pooler: ["Pooler", "A layer over the first token’s row and tanh: one row for the whole text."],
      output: ["Logits", "A score for every token of the vocabulary; softmax turns them into probabilities."],
    },
  },
  largest: (n: number) => `(${n} numbers; the largest:)`,

  backwardTitle: (head: string) => `${head}: the backward pass`,
  backwardHint: (loss: string) =>
    `dX means ∂L/∂X, with L = Σ −log p = ${loss} nats. A training step goes against the gradient: ` +
    "a number grows where its dX is negative. The steps undo the forward pass in reverse " +
    "order, at the model’s own scale. Choose a number: its gradient is compared with a finite " +
    "difference, computed here from Σ dZ ⊙ Z with that number moved by ±ε.",
  backwardSteps: {
    dlogits: ["0 Softmax and cross-entropy", "Each logit’s gradient is its probability, minus 1 for the expected token."],
    dZ: ["1 Output of the head", "The gradient arrives through W_O, which joins the heads."],
    dV: ["2 Values", "A value gets the gradient of every output, by its weight there."],
    dW: ["3 Weights", "dZ of the query · value of the key: negative where more of this value would lower the loss."],
    dA: ["4 Softmax", "A step raises only scores whose dW is below the row’s average: rows of dA add up to 0."],
    dQ: ["5 Queries", "The keys, each times its dA. A step goes against it: towards keys whose dA is negative."],
    dK: ["6 Keys", "The queries, each times its dA. A step goes against it: towards queries whose dA is negative."],
    dx: ["7 Input of the layer", "Q, K and V come from the same rows, so their gradients add up, over all heads."],
  },
  crossInput: "Queries come from the decoder, keys and values from the encoder: two gradients.",
  entryChoice: "entry d",
  moreTerms: (sum: string, n: number) => `${sum} (${n} more terms)`,
  byDifference: (value: string, step: string) => `finite difference: ${value} (ε = ${step})`,
  forbidden: "masked: no gradient",
  axesOf: { keys: "rows: queries, columns: keys", entries: "columns: entries d; rows: " },
  noGradient: "This model predicts nothing, so there is no gradient.",
  wholeModel: (entry: number, byHand: string, difference: string) =>
    `Whole model, in float64, when this file was written: Σᵢ dzᵢ[${entry}] = ${byHand}; the loss ` +
    `with that value bias moved: ${difference}.`,
  checkedAt: (where: string) => `The whole model was checked at ${where}.`,
  tooLarge: "Left out to keep this file small.",
  lossTable: ["token", "p", "y", "dℓ = p − y", "finite difference"],
  inputRow: (row: string) => `dx of ${row}`,

  through: {
    choose: "Backward through",
    place: "which one",
    attention: "Attention",
    roles: { norm: "Norm", feed_forward: "Feed-forward", output: "Loss" } as { [role: string]: string },
    title: (name: string, where: string) => `${name}${where}: the backward pass`,
    hint: (row: string, step: string) =>
      `Gradients of ${row}. Each number is compared with a finite difference of Σ dy ⊙ y (of the ` +
      `loss itself for logits), made in float64 when this was recorded, with ε = ${step}.`,
    difference: (value: string) => `finite difference: ${value}`,
    whole: "the whole text’s row",
    steps: {
      "norm.g": ["1 Scale γ", "y = γ ⊙ x̂ + β, so the gradient of x̂ is dn times γ."],
      "norm.dx": ["2 Input", "Moving one x also moves the mean and the spread of its row: two averages are taken away."],
      "norm.dweight": ["3 γ", "γ is shared by all rows, so its gradient is a sum over them."],
      "norm.dbias": ["4 β", "β is added to every row, so its gradient is the sum of all dn."],
      "feed_forward.da": ["1 After the activation", "The gradient arrives through the second layer, W₂."],
      "feed_forward.dh": ["2 Activation", "Each number is multiplied by the slope of the activation there."],
      "feed_forward.dx": ["3 Input", "Back through the first layer, W₁."],
      "feed_forward.dW1": ["4 Weights of the first layer", "Every row adds its share: the optimizer steps against this sum."],
      "output.dlog_p": ["1 Cross-entropy", "The loss is −log p of the expected token alone, so only its entry has a gradient: −1."],
      "output.dlogits": ["2 Softmax", "Probabilities add up to 1: raising one lowers the others. What remains is p − y."],
      "output.dx": ["3 Output layer", "Each token of the vocabulary sends its dℓ back along its row of W."],
    } as { [step: string]: [string, string] },
    wide: (size: number) => `${size} numbers, too many to keep here`,
  },

  answerTokens: "Tokens of the answer; arrow keys move",
  guessedTokens: "Tokens guessed; arrow keys move",
  predictsNothing: "This model predicts nothing.",
  tokenByToken: "Token by token",
  loss: (loss: string, count: number) =>
    `Loss: −log p of all tokens adds up to ${loss} nats over ${count} ${count === 1 ? "token" : "tokens"}.`,
  labelLoss: (loss: string) => `Loss: −log p of the label, among all labels, is ${loss} nats.`,
  likeliestToken: (n: number) => `Most likely at token ${n} of the text`,
  likeliestLabel: "Most likely for the whole text",
  likeliest: (n: number) => `Most likely in place ${n}`,
  taken: "taken",
  inAnswer: "in the answer",
  others: "all others",
  attendsTo: (layer: number, head: number) => `Where layer ${layer}, head ${head} attends`,
  chooseDecoder: "Choose decoder or cross-attention above to see where it attends",
  weightTip: (w: string) => `weight ${w}`,
  search: "The search",
  beamSearch: "Beam search as a tree",
  greedySearch: "Greedy search",
  treeHint:
    "Each column is one more token, the most likely so far on top. The thick path is the best " +
    "answer; a ring with a number is an answer and its rank.",
  showDropped: "show dropped tokens",
  treeName: "Tree of the search; arrow keys move",
  nodeStates: {
    kept: "extended",
    cut: (rank: number) => `answer ${rank}, stopped at the maximum length`,
    end: (rank: number) => `answer ${rank} ends here`,
    dropped: "dropped",
  },
  afterNothing: "nothing",
  node: (token: string, p: string, after: string, logP: string, state: string) =>
    `“${token}”: p = ${p} after ${after}; Σ log p = ${logP}; ${state}`,
};

export type Text = typeof en;

const ko: Text = {
  languageName: "English",
  kinds: {
    encoder: "인코더 셀프 어텐션",
    decoder: "디코더 셀프 어텐션",
    cross: "크로스 어텐션",
  },
  shortKinds: { encoder: "인코더", decoder: "디코더", cross: "크로스" },
  theme: (name) => `테마: ${name}`,
  themes: { auto: "자동", light: "밝게", dark: "어둡게" },
  keys: "단축키",
  close: "닫기",
  keyHelp: [
    ["Tab", "다음 영역으로 이동합니다. 영역 안에서는 방향키로 움직입니다"],
    ["방향키", "어텐션 맵: 다른 쿼리나 키로, 전체 보기: 다른 헤드로 이동"],
    ["[ ]", "어텐션 맵: 이전 헤드, 다음 헤드"],
    ["{ }", "어텐션 맵: 이전 레이어, 다음 레이어"],
    ["+ − 0", "어텐션 맵: 확대, 축소, 처음 크기"],
  ],
  views: "보기",
  viewsAndHeads: "보기와 헤드",
  headsAndScale: "헤드와 스케일",
  tabs: {
    whole: "모델",
    attention: "어텐션",
    steps: "단계별 계산",
    backward: "역전파",
    generation: "생성",
    run: "직접 해 보기",
  },
  guesses: "빈칸 예측",
  label: "레이블",
  kindOfAttention: "어텐션 종류",
  layer: "레이어",
  head: "헤드",
  layerAndHead: (layer, head) => `레이어 ${layer}의 ${head}번 헤드`,
  nothing: "이 파일에는 보여 줄 어텐션이 없습니다.",
  footer: (off) =>
    "모델의 쿼리, 키, 값으로 이 페이지에서 직접 계산했습니다. 라이브러리의 가중치와의 차이는 최대 " +
    `${off}입니다.`,
  offline: "이 파일은 네트워크에 접속하지 않습니다.",
  asks: "기록을 만들 때 이 페이지의 서버에만 요청합니다.",
  live: {
    name: "직접 입력해 보기",
    text: "텍스트",
    model: "모델",
    beam: "빔",
    temperature: "온도",
    show: "보기",
    wait: "모델을 실행하는 중입니다 …",
    failed: (status) => `서버가 상태 ${status}(으)로 답했습니다.`,
    unreachable: "서버가 응답하지 않습니다. `pellucid serve`가 실행 중인지 확인하세요.",
    kinds: {
      translate: "모델이 텍스트를 번역합니다. 온도가 0보다 크면 답을 무작위로 뽑습니다.",
      chat: "모델이 텍스트에 답합니다. 온도가 0보다 크면 답을 무작위로 뽑습니다.",
      pronounce: "모델이 단어의 발음을 적습니다. 온도가 0보다 크면 답을 무작위로 뽑습니다.",
      continue: "모델이 텍스트를 이어 씁니다. 온도가 0보다 크면 무작위로 뽑습니다.",
      fill: "모델이 맞힐 자리에 [MASK]를 쓰세요.",
      label: "모델이 텍스트에 레이블을 붙입니다.",
    },
  },

  tour: {
    name: "둘러보기",
    back: "이전",
    next: "다음",
    place: (stop, stops) => `전체 ${stops}곳 중 ${stop}번째`,
    stops: {
      search: [
        "강아지 영상 검색하기",
        "검색창에 “강아지”를 입력하면 그것이 쿼리입니다. 영상마다 제목(키)과 영상 자체(값)가 있고, " +
          "검색은 키가 가장 잘 맞는 값을 돌려줍니다. 어텐션도 같은 일을 하되, 키가 맞는 정도를 가중치로 " +
          "삼아 모든 값을 섞어서 돌려줍니다.",
      ],
      tokens: [
        "토큰이 토큰에게 묻습니다",
        "왼쪽 토큰이 쿼리, 오른쪽 토큰이 키입니다. 선이 굵을수록 가중치가 큽니다. 토큰을 고르면 " +
          "어디에 집중하는지 보입니다.",
      ],
      score: [
        "점수는 내적입니다",
        "쿼리와 키는 벡터입니다. 성분끼리 곱해 더하면 숫자 하나가 되고, 두 벡터의 방향이 같을수록 큽니다.",
      ],
      scale: [
        "왜 √dₖ로 나눌까요?",
        "지금은 나누지 않고 점수에 1을 곱했습니다. q·k의 표준편차는 √dₖ에 비례해 커지고, 점수가 크면 " +
          "키 하나가 모두 가져갑니다. 다음 단계에서 모델의 스케일로 돌아갑니다.",
      ],
      softmax: [
        "softmax는 점수를 비율로 바꿉니다",
        "점수를 e의 지수로 올리고 행의 합으로 나눕니다. 한 행의 비율을 더하면 1입니다.",
      ],
      output: ["출력은 값을 섞은 것입니다", "쿼리마다 모든 값에 가중치를 곱해 더한 결과를 받습니다."],
      heads: [
        "헤드마다 묻는 것이 다릅니다",
        "레이어마다 서로 다른 쿼리, 키, 값으로 이 계산을 여러 번 동시에 합니다. 막대가 짧은 헤드는 적은 수의 " +
          "토큰에 집중합니다. 하나를 골라 보세요.",
      ],
      mask: [
        "뒤는 볼 수 없습니다",
        "디코더는 다음 토큰을 예측하므로 그 토큰을 미리 보면 안 됩니다. 그래서 쿼리보다 뒤에 있는 키를 " +
          "가립니다. 인코더는 문장 전체를 읽으므로 아무것도 가리지 않습니다.",
      ],
      gradient: [
        "학습: 역전파",
        "기울기는 숫자 하나가 변할 때 손실이 얼마나 변하는지 나타냅니다. 같은 단계를 거꾸로 지나며, " +
          "카드마다 식과 실제 코드와 유한 차분이 있습니다.",
      ],
      answer: [
        "확률에서 답으로",
        "모델은 자리마다 모든 토큰에 확률을 매깁니다. 빔 탐색은 가장 좋은 앞부분 몇 개를 남기고, 가장 좋은 " +
          "답이 끝날 때까지 늘려 갑니다.",
      ],
    },
  },
  glossary: {
    nat: "자연로그를 쓰는 정보의 단위입니다. 1 nat은 1.44비트입니다.",
    엔트로피: "가중치 한 행의 −Σ w log w입니다. e를 이만큼 거듭제곱하면 집중하는 토큰의 수가 됩니다.",
    "∂L/∂X": "기울기: 숫자 X가 커질 때 손실 L이 얼마나 빨리 커지는지 나타냅니다.",
    기울기: "숫자가 커질 때 손실이 얼마나 빨리 커지는지 나타냅니다.",
    "유한 차분": "숫자를 ±ε만큼 움직여 다시 계산하고 변화를 2ε으로 나눕니다. 미분 없이 구한 기울기입니다.",
    "√dₖ": "헤드의 쿼리와 키의 차원에 제곱근을 씌운 값입니다.",
    softmax: "점수를 e의 지수로 올리고 행의 합으로 나눕니다. 양수이고 합이 1입니다.",
    값: "다른 토큰이 집중할 때 건네주는 벡터입니다.",
    키: "토큰이 자신을 찾을 수 있도록 내놓는 벡터입니다.",
    로짓: "마지막 softmax를 거치기 전의 토큰 점수입니다.",
    손실: "정답 토큰의 −log p를 더한 값(nat)입니다. 모든 확률이 1이면 0입니다.",
    "가장 좋은 답": "탐색에서 점수가 가장 높은 답입니다.",
  },

  allHeads: "모든 레이어 × 헤드",
  allHeadsName: "모든 레이어와 헤드",
  headList: "모든 레이어의 헤드, 방향키로 이동",
  barMeaning: "막대는 평균 엔트로피입니다. 막대가 짧을수록 적은 수의 토큰에 집중합니다.",
  thumbnail: (layer, head, entropy) => `레이어 ${layer}의 ${head}번 헤드, 엔트로피 ${entropy} nat`,

  oneHead: "헤드 하나",
  weights: "가중치",
  weightsW: "가중치 W",
  linkedTokens: "가중치로 이은 토큰",
  secondMap: "두 번째 맵",
  matrix: "행렬",
  lines: "선",
  zoom: "확대",
  fit: "맞춤",
  form: "그리는 방식",
  second: "두 번째 맵",
  seconds: {
    weights: ["∂L/∂W", "기울기 ∂L/∂W", "가중치에 대한 손실의 기울기"],
    scores: ["∂L/∂A", "기울기 ∂L/∂A", "스케일된 점수에 대한 손실의 기울기"],
    change: ["변화", "W의 변화", "현재 가중치에서 모델의 가중치를 뺀 값"],
    head: ["다른 헤드", "다른 헤드의 가중치", "다른 헤드의 가중치, 같은 커서"],
    other: ["비교", "비교 대상의 가중치", "다른 모델이나 텍스트의 가중치, 같은 커서"],
  },
  legends: {
    weights: "모델의 스케일 기준. 주황색: 이 가중치가 커지면 손실이 커집니다",
    scores: "모델의 스케일 기준. 주황색: 이 점수가 커지면 손실이 커집니다",
    change: "현재에서 모델의 값을 뺀 차이",
  },
  ofSecond: { layer: "맵 2의 레이어", head: "맵 2의 헤드" },
  lacksKind: "비교 대상 모델에는 이 종류의 어텐션이 없습니다.",
  losses: (here, there, more) => `답의 −log p: 첫 번째 ${here} nat, 두 번째 ${there} nat (${more})`,
  beside: (query, key, w) => `. 두 번째 맵: “${query}” → “${key}” ${w}`,
  besideLoss: (here, there) => `; −log p: 첫 번째 ${here}, 두 번째 ${there}`,
  shaded: "1, 농도는 √w에 비례",
  masked: "마스크",
  axes: "행: 쿼리, 열: 키",
  linesLegend: "왼쪽: 쿼리, 오른쪽: 키. 선이 굵을수록 가중치가 큽니다",
  subtitle: (name, entropy, count, keys) =>
    `${name} · 엔트로피 ${entropy} nat, 키 ${keys}개 중 ${count}개에 집중하는 것과 같습니다`,
  token: (i, token) => `토큰 ${i} “${token}”`,
  query: (i, token) => `쿼리 ${i} “${token}”`,
  key: (j, token) => `키 ${j} “${token}”`,
  predicting: (token) => `(“${token}” 예측)`,
  lookAhead: (query, key) => `${query}에서는 뒤에 오는 ${key} 토큰을 볼 수 없습니다: 가중치 0`,
  tooFar: (query, key) => `${query}에서는 ${key} 토큰만큼 멀리 볼 수 없습니다: 가중치 0`,
  cell: (query, key, score, scale, scaled, w) =>
    `${query} → ${key}: q·k ${score} × ${scale} = ${scaled} → 가중치 ${w}`,
  matrixRole: "행렬",
  linesRole: "이어진 토큰",
  below: (n, what) => `↓ ${n}개 ${what} 더 있음`,
  rowNames: { keys: "키", queries: "쿼리", tokens: "토큰" },
  right: (n, what) => `→ ${n}개 ${what} 더 있음`,
  more: "더 있음",

  scale: "스케일",
  scaleLabel: ["점수에 d", "을 곱합니다"],
  anyScale: "임의의 스케일",
  usualScales: "자주 쓰는 스케일",
  moreScales: "다른 스케일",
  or: "또는",
  own: "모델",
  ownScale: "모델이 쓰는 스케일",
  noPower: "해당하는 p 없음",
  scaleValue: (p, scale) => `p = ${p}, 스케일 ${scale}`,
  effect: "이 헤드에서 달라지는 값",
  now: "현재",
  effects: {
    by: "곱하는 수",
    entropy: "엔트로피(nat)",
    count: "집중하는 키의 수",
    peak: "가장 큰 가중치(쿼리 평균)",
    change: "가장 큰 변화",
  },

  stepsTitle: (head) => `${head}, 단계별 계산`,
  stages: {
    scores: ["점수", "i가 찾는 것과 j가 가진 것이 얼마나 맞는지 나타냅니다."],
    scaled: ["스케일", "q·k의 표준편차는 √dₖ에 비례합니다. 나누지 않으면 softmax가 포화됩니다."],
    masked: ["마스크", "볼 수 없는 키를 제외합니다."],
    softmax: ["softmax", "점수를 비율로 바꿉니다. 각 행의 합은 1입니다."],
    output: ["출력", "쿼리마다 값을 비율대로 섞어 받습니다."],
  },
  ifAhead: "조건:",
  ahead: "−∞: j가 i보다 뒤에 있음",
  far: "−∞: j가 i에서 너무 멂",
  outputRow: (i, width) => `${i}행: 숫자 ${width}개`,
  numbersOf: "쿼리 하나의 계산",
  everyKey: "쿼리의 모든 키",
  queryChoice: "쿼리 i",
  keyChoice: "키 j",
  columns: ["키", "q·k", "× 스케일", "마스크", "가중치 w"],
  caption: (i, token) => `쿼리 ${i} “${token}”: 모든 키`,
  scoreAndOutput: "점수와 출력",
  scoreAsSum: "곱의 합으로 본 점수",
  headOutput: "헤드의 출력",
  scoreOf: (query, key) => `점수: “${query}”의 q · “${key}”의 k`,
  sumIs: (total) => `마지막 행을 모두 더하면 sᵢⱼ = ${total}입니다. 성분은 네 자리로 반올림했습니다.`,
  outputOf: (query) => `“${query}”의 출력: 값에 가중치를 곱해 더합니다`,
  concatenated: "모든 헤드의 출력을 이어 붙이고 W_O를 곱하면 이 레이어의 출력이 됩니다.",

  whole: {
    name: "모델 전체",
    hint:
      "토큰마다 잔차 스트림이 임베딩에서 예측까지 흘러내립니다. 너비는 √‖x‖에 비례하고, 각 단계가 더하는 " +
      "값은 곁에서 흘러듭니다. 토큰을 고르면 그 흐름이 두드러지고, 단계를 누르면 그 자리에서 펼쳐져 모양, " +
      "파라미터, 실제 값이 보입니다.",
    arcs: "그릴 어텐션",
    mean: "헤드 평균",
    legend: {
      around: "잔차 스트림, 너비는 √‖x‖(길이가 네 배면 너비는 두 배)",
      through: "네트워크나 위치가 더하는 값, √‖y‖",
      between: "키에서 쿼리로 가는 어텐션: 10 % 이상이거나 쿼리에서 가장 큰 가중치, 너비는 √‖y‖의 몫",
      cross: "인코더의 메모리와 크로스 어텐션",
    },
    stations: { self: "셀프 어텐션", cross: "크로스 어텐션", network: "피드포워드" },
    adds: (norm) => `더하는 ‖y‖ ${norm}`,
    attends: (keys) => `집중하는 키: ${keys}`,
    tokens: { source: "인코더의 토큰", target: "디코더의 토큰" },
    stacks: { encoder: "인코더", decoder: "디코더" },
    layer: (n) => `레이어 ${n}`,
    before: "임베딩",
    after: "출력",
    shape: (letters, sizes) => `출력 (${letters}) = ${sizes}`,
    times: (factor) => `${factor}을(를) 곱합니다.`,
    scale: (factor) => `c = ${factor}입니다.`,
    softcap: (most) => `±${most} 안에 둡니다: a ← ${most} tanh(a / ${most}).`,
    added: "쿼리와 키의 거리에 따른 수를 더합니다.",
    window: (reach) => `쿼리는 ${reach}칸보다 가까운 키만 봅니다.`,
    given: "입력",
    returned: "출력",
    norms: "‖행‖",
    gradientNorms: "‖∂L/∂행‖",
    noRows: "이 단계에서 더하는 행은 없습니다.",
    onlyNorms: (tokens) =>
      `파일을 작게 유지하려고 다음 토큰의 행만 담았습니다: ${tokens}. 길이는 모든 토큰의 값이 있습니다.`,
    ofHead: (head) => `${head}번 헤드`,
    moreKeys: (n) => `… 키 ${n}개 더`,
    predictsNothing: "이 토큰 다음에는 정답 토큰이 없어 확률을 기록하지 않았습니다.",
    expects: (token, loss) => `정답: “${token}”, −log p = ${loss} nat.`,
    remarks: {
      sinusoidal: "위치의 사인과 코사인이며 학습하지 않습니다.",
      learned: "위치마다 한 행이 있는, 학습한 표입니다.",
      rotary: "회전 위치 인코딩이라 여기서는 아무것도 더하지 않고, 쿼리와 키를 회전합니다.",
      causal: "쿼리보다 뒤에 있는 키는 가립니다.",
      alibi: "여기서는 아무것도 더하지 않고, 쿼리와 키의 거리에 따라 점수를 낮춥니다(ALiBi).",
      relative: "여기서는 아무것도 더하지 않고, 거리마다 학습한 수를 점수에 더합니다(T5).",
      qk_norm: "헤드마다 행을 정규화합니다.",
      shared: "이웃한 쿼리 헤드들이 키와 값의 헤드 하나를 함께 씁니다.",
      swiglu: "게이트 방식: 은닉 값의 절반이 나머지 절반에 곱해집니다.",
      geglu: "게이트 방식: 은닉 값의 절반이 나머지 절반에 곱해집니다.",
      geglu_tanh: "게이트 방식: 은닉 값의 절반이 나머지 절반에 곱해집니다.",
    },
    parts: {
      embedding: ["임베딩", "토큰마다 표에서 한 행을 찾아옵니다."],
      positions: ["위치", "어텐션에는 순서가 없으므로 자리마다 다른 행을 더합니다."],
      segments: ["세그먼트", "토큰이 속한 세그먼트의 행입니다."],
      sum: ["x₀", "더한 결과이며, 첫 레이어에 들어가는 행입니다."],
      norm: ["정규화", "모든 행을 같은 크기로 맞춘 다음 γ를 곱합니다."],
      queries: ["W_Q", "토큰이 찾는 것으로, 헤드마다 있습니다."],
      keys: ["W_K", "토큰이 자신을 찾을 수 있도록 내놓는 것입니다."],
      values: ["W_V", "다른 토큰이 집중할 때 건네주는 것입니다."],
      scores: ["점수", "쿼리와 키를 모두 짝지어 곱하고 스케일합니다."],
      softmax: ["softmax", "점수가 가중치로 바뀝니다. 각 행의 합은 1입니다."],
      heads: ["W V", "헤드마다 값을 가중치대로 섞습니다."],
      projection: ["W_O", "모든 헤드의 출력을 이어 붙여 행의 차원으로 되돌립니다."],
      feed_forward: ["피드포워드", "선형 레이어 둘과 그 사이의 활성화 함수를 토큰마다 따로 적용합니다."],
      residual: ["+ 잔차", "서브레이어의 출력을 입력에 더합니다."],
      transform: ["변환", "토큰을 예측하기 전에 거치는 레이어입니다."],
      mean: ["평균", "모든 토큰의 행을 평균하여 텍스트 전체의 행 하나를 만듭니다."],
      pooler: ["풀러", "첫 토큰의 행을 레이어와 tanh에 통과시켜 텍스트 전체의 행 하나를 만듭니다."],
      output: ["로짓", "어휘의 모든 토큰에 점수를 매깁니다. softmax가 확률로 바꿉니다."],
    },
  },
  largest: (n) => `(숫자 ${n}개, 가장 큰 것:)`,

  backwardTitle: (head) => `${head}: 역전파`,
  backwardHint: (loss) =>
    `dX는 ∂L/∂X이고 L = Σ −log p = ${loss} nat입니다. 학습은 기울기의 반대 방향으로 움직이므로, dX가 ` +
    "음수인 숫자가 커집니다. 순전파의 단계를 거꾸로 되짚으며, 모델의 스케일을 씁니다. 숫자를 하나 고르면 그 기울기를 유한 차분과 비교합니다. 유한 차분은 그 숫자를 ±ε만큼 " +
    "움직인 Σ dZ ⊙ Z로 이 페이지에서 계산합니다.",
  backwardSteps: {
    dlogits: ["0 softmax와 교차 엔트로피", "로짓의 기울기는 확률이며, 정답 토큰에서만 1을 뺍니다."],
    dZ: ["1 헤드의 출력", "헤드를 합치는 W_O를 거쳐 기울기가 들어옵니다."],
    dV: ["2 값", "값은 모든 출력의 기울기를 가중치만큼 받습니다."],
    dW: ["3 가중치", "쿼리의 dZ와 키의 값을 내적한 것입니다. 이 값을 더 섞어 손실이 줄면 음수입니다."],
    dA: ["4 softmax", "dW가 행의 평균보다 작은 점수만 학습에서 커집니다. dA의 각 행의 합은 0입니다."],
    dQ: ["5 쿼리", "키마다 dA를 곱해 더합니다. 학습은 그 반대로, dA가 음수인 키 쪽으로 쿼리를 움직입니다."],
    dK: ["6 키", "쿼리마다 dA를 곱해 더합니다. 학습은 그 반대로, dA가 음수인 쿼리 쪽으로 키를 움직입니다."],
    dx: ["7 레이어의 입력", "Q, K, V가 같은 행에서 나오므로 모든 헤드의 기울기를 더합니다."],
  },
  crossInput: "쿼리는 디코더에서, 키와 값은 인코더에서 나오므로 기울기가 둘입니다.",
  entryChoice: "성분 d",
  moreTerms: (sum, n) => `${sum} (나머지 항 ${n}개)`,
  byDifference: (value, step) => `유한 차분: ${value} (ε = ${step})`,
  forbidden: "마스크된 칸에는 기울기가 없습니다",
  axesOf: { keys: "행: 쿼리, 열: 키", entries: "열: 성분 d, 행: " },
  noGradient: "이 모델은 토큰을 예측하지 않으므로 기울기가 없습니다.",
  wholeModel: (entry, byHand, difference) =>
    `파일을 만들 때 모델 전체로 검증한 값(float64): Σᵢ dzᵢ[${entry}] = ${byHand}, 값의 바이어스를 ` +
    `움직여 구한 손실의 유한 차분: ${difference}.`,
  checkedAt: (where) => `모델 전체 검증은 ${where}에서 했습니다.`,
  tooLarge: "파일을 작게 유지하려고 뺐습니다.",
  lossTable: ["토큰", "p", "y", "dℓ = p − y", "유한 차분"],
  inputRow: (row) => `${row}의 dx`,

  through: {
    choose: "역전파 대상",
    place: "위치",
    attention: "어텐션",
    roles: { norm: "정규화", feed_forward: "피드포워드", output: "손실" },
    title: (name, where) => `${name}${where}: 역전파`,
    hint: (row, step) =>
      `${row}의 기울기입니다. 숫자마다 Σ dy ⊙ y(로짓에서는 손실)의 유한 차분과 비교합니다. 유한 차분은 ` +
      `기록할 때 float64로 구했고 ε = ${step}입니다.`,
    difference: (value) => `유한 차분: ${value}`,
    whole: "텍스트 전체의 행",
    steps: {
      "norm.g": ["1 스케일 γ", "y = γ ⊙ x̂ + β이므로 x̂의 기울기는 dn에 γ를 곱한 것입니다."],
      "norm.dx": ["2 입력", "x 하나가 움직이면 그 행의 평균과 표준편차도 움직이므로 두 평균을 뺍니다."],
      "norm.dweight": ["3 γ", "γ는 모든 행이 함께 쓰므로 기울기를 모두 더합니다."],
      "norm.dbias": ["4 β", "β는 모든 행에 더해지므로 기울기는 dn의 합입니다."],
      "feed_forward.da": ["1 활성화 뒤", "두 번째 레이어 W₂를 거쳐 기울기가 들어옵니다."],
      "feed_forward.dh": ["2 활성화 함수", "숫자마다 그 자리에서의 활성화 함수의 기울기를 곱합니다."],
      "feed_forward.dx": ["3 입력", "첫 번째 레이어 W₁을 거꾸로 지납니다."],
      "feed_forward.dW1": ["4 첫 번째 레이어의 가중치", "모든 행의 몫을 더합니다. 옵티마이저는 이 합의 반대 방향으로 움직입니다."],
      "output.dlog_p": ["1 교차 엔트로피", "손실은 정답 토큰의 −log p뿐이므로 그 성분에만 기울기 −1이 있습니다."],
      "output.dlogits": ["2 softmax", "확률의 합은 1이므로 하나가 오르면 나머지는 내립니다. 남는 것은 p − y입니다."],
      "output.dx": ["3 출력 레이어", "어휘의 토큰마다 자신의 dℓ을 W의 행을 따라 돌려보냅니다."],
    },
    wide: (size) => `숫자 ${size}개라서 여기에 담지 않았습니다`,
  },

  answerTokens: "답의 토큰, 방향키로 이동",
  guessedTokens: "예측한 토큰, 방향키로 이동",
  predictsNothing: "이 모델은 토큰을 예측하지 않습니다.",
  tokenByToken: "토큰별 예측",
  loss: (loss, count) => `손실: 토큰 ${count}개의 −log p를 모두 더하면 ${loss} nat입니다.`,
  labelLoss: (loss) => `손실: 모든 레이블 가운데 이 레이블의 −log p는 ${loss} nat입니다.`,
  likeliestToken: (n) => `텍스트의 ${n}번째 토큰 후보`,
  likeliestLabel: "텍스트 전체의 후보",
  likeliest: (n) => `${n}번째 자리의 후보`,
  taken: "선택됨",
  inAnswer: "답에 있음",
  others: "나머지",
  attendsTo: (layer, head) => `레이어 ${layer}의 ${head}번 헤드가 집중하는 곳`,
  chooseDecoder: "위에서 디코더나 크로스 어텐션을 고르면 어디에 집중하는지 보입니다",
  weightTip: (w) => `가중치 ${w}`,
  search: "탐색",
  beamSearch: "빔 탐색 트리",
  greedySearch: "탐욕 탐색",
  treeHint:
    "한 열마다 토큰이 하나씩 늘어나며, 지금까지 확률이 가장 높은 것이 위에 있습니다. 굵은 길이 " +
    "가장 좋은 답이고, 동그라미 안의 수는 답의 순위입니다.",
  showDropped: "버려진 토큰 보기",
  treeName: "탐색 트리, 방향키로 이동",
  nodeStates: {
    kept: "계속 확장함",
    cut: (rank) => `${rank}순위 답, 최대 길이에서 멈춤`,
    end: (rank) => `${rank}순위 답이 여기서 끝남`,
    dropped: "버려짐",
  },
  afterNothing: "없음",
  node: (token, p, after, logP, state) =>
    `“${token}”: p = ${p}, 앞의 토큰: ${after}; Σ log p = ${logP}; ${state}`,
};

export const TEXTS: { [language in Language]: Text } = { en, ko };

/** The words in the language of the page; `speak` changes it, and the page is built anew. */
export let t: Text = en;

export function speak(language: Language): void {
  t = TEXTS[language];
  document.documentElement.lang = language;
}

/** The language of the address (`#lang=ko`), else that asked for when the file was written, else the browser's. */
export function preferred(asked: Language | null | undefined): Language {
  const said = new URLSearchParams(globalThis.location?.hash.slice(1)).get("lang");
  if (said === "en" || said === "ko") return said;
  return asked ?? (navigator.language.toLowerCase().startsWith("ko") ? "ko" : "en");
}

// The prompt box: sends what was asked, streams the answer, counts rounds and acceptance as they come.

import { byId, el, reconcile, say, setOptions, show } from "./dom.js";
import { events, request } from "./api.js";
import { EXAMPLES } from "./examples.js";
import { ms, number } from "./format.js";
import { Answer, showKinds } from "./tokens.js";

const LABELS = { chat: "Message", completion: "Text to go on from" };
const COUNTS = ["Tokens", "Rounds", "Tokens per round", "Acceptance", "First token", "Per token"];

/** The section. onKey(): what to do where the server asks for a key. */
export function makePrompt(onKey) {
  const box = new PromptBox(onKey);
  return { update: (state) => box.update(state) };
}

class PromptBox {
  constructor(onKey) {
    this.onKey = onKey;
    this.stopping = null;
    this.answer = null;
    byId("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    byId("ask").addEventListener("change", (event) => event.target.name === "kind" && this.showKind());
    byId("text").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("ask").requestSubmit();
    });
    byId("halt").addEventListener("click", () => this.stopping?.abort());
    byId("tokens").addEventListener("toggle", () => this.showTable());
    for (const [name, text] of Object.entries(EXAMPLES)) {
      byId("examples").append(el("button", { type: "button", class: "chip", onclick: () => this.take(text) }, name));
    }
    this.showKind();
    showKinds({ accepted: null, correction: null, bonus: null, plain: null });
    this.showCounts(COUNTS.map((name) => [name, "–"]));
  }

  take(text) {
    byId("text").value = text;
    byId("text").focus();
  }

  update({ stats, rollout }) {
    const labels = stats.drafters;
    setOptions(byId("drafter"), [["", labels.length ? `the server's first (${labels[0]})` : "the server has none"],
      ...labels.map((label) => [label, label]), ["none", "none"]]);
    const decides = rollout ? "as the rollout decides" : "as the server decides";
    setOptions(byId("enabled"), [["", decides], ["on", "on"], ["off", "off"]]);
    const seen = new Set(stats.buckets.map((each) => each.bucket));
    const names = rollout ? Object.keys(rollout.status.buckets) : [...seen];
    reconcile(byId("bucket-names"), names, (name) => name, (name) => el("option", { value: name }), () => {});
    const chat = document.querySelector("[name=kind][value=chat]");
    if (chat.disabled === stats.chat) chat.disabled = !stats.chat;
    if (!stats.chat && chat.checked) {
      document.querySelector("[name=kind][value=completion]").checked = true;
      this.showKind();
    }
  }

  get kind() {
    return document.querySelector("[name=kind]:checked").value;
  }

  showKind() {
    say(byId("text-label"), LABELS[this.kind]);
  }

  body() {
    const number = (id) => (byId(id).value === "" ? undefined : Number(byId(id).value));
    const enabled = { on: true, off: false }[byId("enabled").value];
    const drafter = byId("drafter").value || undefined;
    const speculation = { trace: true, enabled, drafter, max_draft_tokens: number("cap") };
    const text = byId("text").value;
    const asked = this.kind === "chat" ? { messages: [{ role: "user", content: text }] } : { prompt: text };
    return { ...asked, stream: true, temperature: number("temperature"), max_tokens: number("max-tokens"),
      seed: number("seed"), bucket: byId("bucket").value || undefined, speculation };
  }

  async send() {
    if (this.stopping) return;
    say(byId("ask-error"), "");
    if (byId("text").value === "") {
      say(byId("ask-error"), "There is no text to send yet.");
      byId("text").focus();
      return;
    }
    this.begin();
    try {
      const path = this.kind === "chat" ? "v1/chat/completions" : "v1/completions";
      const response = await request(path, { body: this.body(), signal: this.stopping.signal });
      for await (const chunk of events(response)) this.read(chunk);
      this.end("The answer is whole");
    } catch (error) {
      this.failed(error);
    } finally {
      this.stopping = null;
      show(byId("halt"), false);
      show(byId("send"), true);
      byId("output").removeAttribute("aria-busy");
      this.answer.settle();
      this.showTable();
    }
  }

  begin() {
    this.stopping = new AbortController();
    this.answer = new Answer();
    this.sent = performance.now();
    this.first = this.told = this.finish = null;
    const sending = document.activeElement === byId("send");
    show(byId("send"), false);
    show(byId("halt"), true);
    if (sending) byId("halt").focus();
    byId("output").setAttribute("aria-busy", "true");
    say(byId("applied"), "");
    say(byId("said"), "The answer begins");
    this.showLive();
  }

  read(chunk) {
    const choice = chunk.choices[0];
    if (choice) {
      const text = choice.delta ? choice.delta.content ?? "" : choice.text;
      if (choice.tokens?.length) this.first ??= performance.now();
      this.last = performance.now();
      this.answer.add(choice.tokens ?? [], text);
      this.finish = choice.finish_reason ?? this.finish;
    }
    this.told = chunk.metrics?.speculative_decoding ?? this.told;
    this.showLive();
  }

  failed(error) {
    if (error.name === "AbortError") {
      this.end("Stopped");
      return;
    }
    say(byId("ask-error"), error.message);
    say(byId("said"), "");
    if (error.status === 401) this.onKey();
  }

  end(how) {
    const { numTokens } = this.answer;
    say(byId("said"), `${how}: ${number(numTokens)} tokens in ${number(this.answer.rounds.length)} rounds.`);
    if (this.told) say(byId("applied"), appliedText(this.told, this.finish));
    else say(byId("applied"), `${how}.`);
  }

  showLive() {
    const { counts, rounds, numTokens } = this.answer;
    showKinds(counts);
    // a refused guess is a tested one: it shows as the correction that came instead
    const tested = this.told ? this.told.num_tested_draft_tokens : counts.accepted + counts.correction;
    const seconds = this.first === null ? 0 : (this.last - this.first) / 1000;
    const later = numTokens - (rounds[0]?.length ?? 0);
    const values = [
      number(numTokens),
      number(rounds.length),
      rounds.length ? (numTokens / rounds.length).toFixed(2) : "–",
      tested ? (counts.accepted / tested).toFixed(2) : "–",
      this.first === null ? "–" : ms((this.first - this.sent) / 1000),
      later > 0 && seconds > 0 ? ms(seconds / later) : "–",
    ];
    this.showCounts(COUNTS.map((name, index) => [name, values[index]]));
  }

  showCounts(pairs) {
    reconcile(byId("counts"), pairs, ([name]) => name, ([name]) => el("div", {}, el("dt", {}, name), el("dd")),
      (node, [, value]) => say(node.lastElementChild, value));
  }

  showTable() {
    if (byId("tokens").open && this.answer && !this.stopping) {
      byId("tokens").querySelector(".scroll").replaceChildren(this.answer.table());
    }
  }
}

/** What the server says it applied. */
function appliedText(told, finish) {
  const stage = told.stage === null ? "" : `, stage ${told.stage}`;
  const mode = { on: `speculating with ${told.drafter}`, off: "plain decoding",
    shadow: `plain decoding, drafts of ${told.drafter} scored in shadow` }[told.mode];
  const ends = { length: "it reached the most tokens", stop: "the model ended it", shutdown: "the server shut down" };
  const { num_tested_draft_tokens: tested, num_accepted_draft_tokens: accepted } = told.shadow ?? {};
  const shadow = tested ? ` (${number(accepted)} of ${number(tested)} accepted)` : "";
  return `Applied: ${mode}${shadow} in bucket ${told.bucket}${stage}; rule ${told.rule}, seed ${told.seed}. ` +
    `Ended because ${ends[finish] ?? finish}.`;
}

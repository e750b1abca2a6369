// An answer as it grows: each token in the colour of where it came from, rounds as groups, and what they add up to.

import { byId, el, reconcile, say, table } from "./dom.js";
import { number } from "./format.js";

export const KINDS = [
  { id: "accepted", label: "accepted draft", about: "guessed by the drafter, confirmed by the model" },
  { id: "correction", label: "correction", about: "the model's own token after a refused guess" },
  { id: "bonus", label: "bonus", about: "the model's own token after guesses that all held" },
  { id: "plain", label: "plain", about: "a step without a guess" },
];

/** The legend, with a count of each kind. */
export function showKinds(counts) {
  reconcile(byId("kinds"), KINDS, (kind) => kind.id,
    ({ id, label, about }) => el("li", { title: about, "data-kind": id },
      el("span", { class: `token ${id}` }, label), " ", el("b")),
    (node, { id }) => say(node.lastElementChild, number(counts[id])));
}

/** One answer. */
export class Answer {
  constructor() {
    this.output = byId("output");
    this.output.replaceChildren();
    delete this.output.dataset.empty;
    this.counts = { accepted: 0, correction: 0, bonus: 0, plain: 0 };
    this.rounds = [];
    this.text = "";
  }

  get numTokens() {
    return this.rounds.reduce((sum, round) => sum + round.length, 0);
  }

  /** Tokens of one step, and the text that the API gave with it. */
  add(tokens, text) {
    this.text += text;
    if (!tokens.length) return;
    this.rounds.push(tokens);
    const round = el("span", { class: "round" });
    for (const { id, kind, text: piece } of tokens) {
      this.counts[kind] += 1;
      const label = KINDS.find((each) => each.id === kind)?.label ?? kind;
      const title = `${label}, round ${this.rounds.length}, token ${id}`;
      round.append(el("span", { class: `token ${kind}`, title, "data-id": id }, piece));
    }
    const atEnd = this.output.scrollHeight - this.output.scrollTop - this.output.clientHeight < 40;
    this.output.append(round);
    if (atEnd) this.output.scrollTop = this.output.scrollHeight;
  }

  /** At its end: the answer is what the API gave; where a token was cut from the text, so it is here. */
  settle() {
    let rest = this.text;
    for (const token of this.output.querySelectorAll(".token")) {
      const piece = token.textContent;
      if (!rest.startsWith(piece)) say(token, rest.slice(0, piece.length));
      rest = rest.slice(piece.length);
    }
    if (rest) this.output.append(el("span", { class: "token plain" }, rest));
  }

  /** Every token in a table. */
  table() {
    const rows = this.rounds.flatMap((round, index) => round.map((token) => [
      String(index + 1), token.kind, String(token.id), el("code", {}, JSON.stringify(token.text))]));
    return table("Tokens", ["round", "came from", "id", "text"], rows);
  }
}

// The one dialog: says what will happen, takes a reason for the log, and stays open with the error where it fails.

import { byId, el, say } from "./dom.js";

let running = null;

/** Connects the dialog; once. */
export function setUpConfirm() {
  const dialog = byId("confirm");
  byId("confirm-no").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    run(dialog);
  });
}

/** Asks. action: {title, text, list, yes, danger, act(reason)}; the dialog closes once `act` is done. */
export function confirm(action) {
  running = action;
  say(byId("confirm-title"), action.title);
  say(byId("confirm-text"), action.text);
  byId("confirm-list").replaceChildren(...(action.list ?? []).map((text) => el("li", {}, text)));
  say(byId("confirm-error"), "");
  const yes = byId("confirm-yes");
  say(yes, action.yes);
  yes.className = action.danger ? "danger" : "primary";
  yes.disabled = false;
  byId("confirm-reason").value = "";
  byId("confirm").showModal();
  byId("confirm-reason").focus();
}

async function run(dialog) {
  const action = running;
  const yes = byId("confirm-yes");
  yes.disabled = true;
  say(byId("confirm-error"), "");
  try {
    await action.act(byId("confirm-reason").value.trim());
    if (running === action) dialog.close();
  } catch (error) {
    if (running === action) say(byId("confirm-error"), error.message);
  } finally {
    if (running === action) yes.disabled = false;
  }
}

// Chats as a page of somebody's own would, by what useChat is made of, AbstractChat and the transport of `ai` as they are,
// with the demo's server; prints as JSON what came of it. Arguments: the server's address, and the cookie of a login.
import { AbstractChat, DefaultChatTransport } from "ai";

const [address, cookie] = Deno.args;
const headers = { cookie, origin: new URL(address).origin };

class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => (this.messages = [...this.messages, message]);
  popMessage = () => (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) => (this.messages = this.messages.with(index, structuredClone(message)));
  snapshot = structuredClone;
}

class Chat extends AbstractChat {
  constructor(options) {
    super({ ...options, state: new State() });
  }
}

/** A chat, and a function that waits for a state of its program. */
function opened(id) {
  const seen = [];
  let wake = () => {};
  const onData = (part) => {
    seen.push(part.data);
    wake();
  };
  const chat = new Chat({ id, transport: new DefaultChatTransport({ api: `${address}api/chat`, headers }), onData });
  const until = async (fits) => {
    while (!fits(seen.at(-1))) await new Promise((resolve) => (wake = resolve));
    return seen.at(-1);
  };
  return { chat, until };
}

const waiting = (execution) => execution?.calls.find((call) => call.approval?.state === "waiting");
const texts = (chat) => chat.messages.map(({ parts }) => parts.flatMap((part) => part.text?.trim() ?? []).join(" "));

async function decide(execution, decision) {
  const url = `${address}api/approvals/${execution.id}/${waiting(execution).n}`;
  const options = { method: "POST", headers: { ...headers, "content-type": "application/json" } };
  const { digest } = waiting(execution).approval;
  return (await fetch(url, { ...options, body: JSON.stringify({ ...decision, digest }) })).status;
}

const first = opened("own-page");
const sent = first.chat.sendMessage({ text: "Refund the customers whose parcels are late" });
await first.until(waiting);
const second = opened("own-page"); // as after a reload
const resumed = second.chat.resumeStream();
const asked = await second.until(waiting);
const statuses = [await decide(asked, { approved: true })];
const again = await second.until((execution) => waiting(execution) && waiting(execution).n !== waiting(asked).n);
statuses.push(await decide(again, { approved: false, reason: "too much" }));
await Promise.all([sent, resumed]);
const told = [first, second].map(({ chat }) => ({ status: chat.status, last: texts(chat).at(-1) }));
const ended = second.chat.lastMessage.parts.find((part) => part.type === "data-execution").data;

const third = opened("own-page-2");
await third.chat.sendMessage({ text: "hello" });
const before = third.chat.lastMessage.id;
await third.chat.regenerate();
const other = { renewed: third.chat.lastMessage.id !== before, texts: texts(third.chat), status: third.chat.status };
await opened("own-page-2").chat.resumeStream(); // there is nothing to resume

const failed = [first, second, third].map(({ chat }) => chat.error?.message);
console.log(JSON.stringify({ statuses, told, ended, other, failed }));

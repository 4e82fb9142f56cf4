// What only programs that run elsewhere do. The body of an async function of `connect`, `tokens` and `url`.
const seen = {};
const check = async (name, calls) => {
  try {
    seen[name] = await calls();
  } catch (error) {
    seen[name] = [error.name, error.code, error.message, error.retryAfterSeconds ?? null];
  }
};
const open = (name, options = {}) => connect({ url, token: tokens[name], ...options }).tools;

const ended = open("ended");
await check("before its end", () => ended.add({ a: 1, b: 2 }));
const running = check("a call that runs at its end", () => ended.wait());
await ended.end_execution();
await running;
await check("after its end", () => ended.add({ a: 1, b: 2 }));

const small = open("small", { maxInputBytes: 10_000_000 });
const code = (call) => call.then(() => "none", (error) => error.code);
await check("an input over the host's limit", () => code(small.echo("x".repeat(2000))));
await check("an input over all limits", () => code(small.echo("x".repeat(1_200_000))));

await check("a token of nobody", () => connect({ url, token: "x.y.z" }).tools.add());
await check("a token that is not renewed", () => open("once").add({ a: 1, b: 2 }));

const post = async (path, body, token = tokens.plain) => {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const response = await fetch(`${url}${path}`, { method: "POST", headers, body });
  const { error, ...rest } = [await response.json()].map((found) => (found?.error ? found : { value: found }))[0];
  return [response.status, error ? error.code : rest.value, response.headers.get("retry-after")];
};
await check("fetch: a value", () => post("/tools/add", `{"a": 1, "b": 2}`));
await check("fetch: without a body", () => post("/tools/inbox", ""));
await check("fetch: bytes and numbers", () => post("/tools/binary", "{}"));
await check("fetch: nothing", () => post("/tools/nothing", "{}"));
await check("fetch: tags are plain data", () => post("/tools/echo", `{"$bytes": "AQI="}`));
await check("fetch: a namespace", () => post("/tools/maths.twice", `{"number": 4}`));
await check("fetch: invalid_arguments", () => post("/tools/add", `{"a": "x"}`));
await check("fetch: not JSON", () => post("/tools/add", `{`));
await check("fetch: tool_not_found", () => post("/tools/ad", "{}"));
await check("fetch: tool_error", () => post("/tools/refuse", "{}"));
await check("fetch: tool_failed", () => post("/tools/break_down", "{}"));
await check("fetch: scope_denied", () => post("/tools/send", `{"text": "x"}`));
await check("fetch: approval_denied", () => post("/tools/pay", `{"euros": 70}`));
await check("fetch: the first of an hour", () => post("/tools/quote", "{}"));
await check("fetch: rate_limited", () => post("/tools/quote", "{}"));
await check("fetch: message_too_large", () => post("/tools/echo", JSON.stringify("x".repeat(20_000)), tokens.small));
await check("fetch: invalid_token", () => post("/tools/add", "{}", "x"));
await check("fetch: call_budget_exceeded", async () => {
  await post("/tools/nothing", "{}", tokens.one);
  return await post("/tools/nothing", "{}", tokens.one);
});
await check("fetch: a fresh token", async () => {
  const [status, { token, expires }] = await post("/token", "{}");
  return [status, expires > Date.now() / 1000 + 200, await post("/tools/add", `{"a": 1, "b": 2}`, token)];
});
await check("fetch: a token that is not renewed", () => post("/token", "{}", tokens.once));
return seen;

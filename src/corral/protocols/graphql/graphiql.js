// The page of GraphiQL: a field for the token, and a fetcher over server-sent events.
const endpoint = new URL("./", location.href).href;
const root = ReactDOM.createRoot(document.getElementById("graphiql"));
let token = "";

// Each operation is a stream: of one result, but for subscriptions.
async function* fetcher(params, { headers = {} } = {}) {
  const authorization = token === "" ? {} : { authorization: `Bearer ${token}` };
  const response = await fetch(endpoint, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "text/event-stream", ...authorization, ...headers },
    body: JSON.stringify(params),
  });
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
    yield await response.json(); // it was refused as a whole
    return;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (let read; !(read = await reader.read()).done; ) {
      const events = (text + read.value).split("\n\n");
      text = events.pop();
      for (const event of events) {
        const fields = event.split("\n").map((line) => line.match(/^(\w+): ?(.*)$/)?.slice(1) ?? []);
        const data = fields.filter(([name]) => name === "data").map(([, value]) => value).join("\n");
        if (data !== "") yield JSON.parse(data);
      }
    }
  } finally {
    await reader.cancel();
  }
}

// A new key makes a new GraphiQL, which asks for the schema again.
function show() {
  root.render(React.createElement(GraphiQL, { key: token, fetcher }));
}

document.getElementById("entrance").addEventListener("submit", (event) => {
  event.preventDefault();
  token = document.getElementById("token").value.trim();
  show();
});
show();

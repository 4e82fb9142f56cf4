import { StrictMode, useCallback, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { type ConversationInfo, type Execution, request, root } from "./api";
import { Chat } from "./chat";
import { Program } from "./program";
import "./style.css";

interface About {
  title: string;
  user: string;
  suggestions: string[];
}

interface Opened {
  id: string;
  messages: never[];
  running: boolean;
}

const newId = () => `c-${crypto.randomUUID()}`;

function App() {
  const [about, setAbout] = useState<About>();
  const [conversations, setConversations] = useState<ConversationInfo[]>([]);
  const [opened, setOpened] = useState<Opened>();
  const [problem, setProblem] = useState("");
  const [listed, setListed] = useState(false);

  const refresh = useCallback(() => {
    request<ConversationInfo[]>("api/conversations").then(setConversations, (error: Error) => setProblem(error.message));
  }, []);
  const open = useCallback((id: string) => {
    setListed(false);
    request<Opened>(`api/conversations/${encodeURIComponent(id)}`).then(
      (found) => {
        location.hash = found.id;
        setOpened(found);
      },
      () => begin(),
    );
  }, []);
  const begin = () => {
    setListed(false);
    history.replaceState(null, "", location.pathname);
    setOpened({ id: newId(), messages: [], running: false });
  };
  useEffect(() => {
    request<About>("api/about").then(setAbout, (error: Error) => setProblem(error.message));
    refresh();
    const id = location.hash.slice(1);
    if (id) open(id);
    else begin();
    window.addEventListener("focus", refresh);
    return () => window.removeEventListener("focus", refresh);
  }, [open, refresh]);
  useEffect(() => {
    if (about) document.title = about.title;
  }, [about]);

  const remove = (id: string) =>
    request(`api/conversations/${encodeURIComponent(id)}`, { method: "DELETE" }).then(
      () => {
        refresh();
        if (opened?.id === id) begin();
      },
      (error: Error) => setProblem(error.message),
    );
  const changed = () => {
    if (opened && location.hash !== `#${opened.id}`) history.replaceState(null, "", `#${opened.id}`);
    setTimeout(refresh, 100);
  };
  return (
    <div className="page">
      <nav className={listed ? "listed" : ""} aria-label="Conversations">
        <header>
          <b>{about?.title ?? "corral"}</b>
          <button type="button" className="menu" aria-expanded={listed} onClick={() => setListed(!listed)}>
            Conversations
          </button>
        </header>
        <button type="button" className="new" onClick={begin}>
          New conversation
        </button>
        <ul>
          {conversations.map((each) => (
            <li key={each.id} className={each.id === opened?.id ? "here" : ""}>
              <button type="button" onClick={() => open(each.id)} aria-current={each.id === opened?.id ? "page" : undefined}>
                {each.title}
                {each.running && <span className="dot" role="img" aria-label="in progress" />}
              </button>
              <button type="button" className="quiet" aria-label={`Delete ${each.title}`} onClick={() => void remove(each.id)}>
                ×
              </button>
            </li>
          ))}
        </ul>
        {about && <footer>{about.user}</footer>}
      </nav>
      <main>
        {problem && (
          <p className="why" role="alert">
            {problem}
          </p>
        )}
        {opened && about && (
          <Chat
            key={opened.id}
            id={opened.id}
            earlier={opened.messages}
            running={opened.running}
            suggestions={about.suggestions}
            onChange={changed}
          />
        )}
      </main>
    </div>
  );
}

function ExecutionPage({ id }: { id: string }) {
  const [execution, setExecution] = useState<Execution>();
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    const load = () =>
      request<Execution>(`api/executions/${encodeURIComponent(id)}`).then(
        (found) => {
          setExecution(found);
          if (found.status === "running" || found.status === "waiting") timer = setTimeout(load, 500);
        },
        (error: Error) => setProblem(error.message),
      );
    void load();
    return () => clearTimeout(timer);
  }, [id]);
  return (
    <main className="execution">
      <p>
        <a href={root}>Conversations</a>
      </p>
      <h2>{id}</h2>
      {problem && (
        <p className="why" role="alert">
          {problem}
        </p>
      )}
      {execution && (
        <>
          <p className="note">{new Date(execution.began * 1000).toLocaleString()}</p>
          <Program execution={execution} alone />
        </>
      )}
    </main>
  );
}

const [, execution] = location.pathname.match(/\/executions\/([^/]+)$/) ?? [];
createRoot(document.getElementById("root")!).render(
  <StrictMode>{execution ? <ExecutionPage id={decodeURIComponent(execution)} /> : <App />}</StrictMode>,
);

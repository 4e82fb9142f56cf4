import { StrictMode, useCallback, useEffect, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import { type ConversationInfo, type Execution, request, root, Unreachable } from "./api";
import { Approvals } from "./approvals";
import { Chat } from "./chat";
import { Conversations } from "./conversations";
import { Icon } from "./icon";
import { Program } from "./program";
import { Timeline } from "./timeline";
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

const REFRESH_MS = 3_000;

const newId = () => `c-${crypto.randomUUID()}`;

function App() {
  const [about, setAbout] = useState<About>();
  const [conversations, setConversations] = useState<ConversationInfo[]>([]);
  const [opened, setOpened] = useState<Opened>();
  const [problem, setProblem] = useState("");
  const [visit, setVisit] = useState(0);
  const wanted = useRef(""); // the conversation that was last asked for: answers that come late for another change nothing

  const refresh = useCallback(() => {
    request<ConversationInfo[]>("api/conversations").then(
      (found) => {
        setConversations(found);
        setProblem("");
      },
      (error: Error) => setProblem(error.message),
    );
  }, []);
  const open = useCallback((id: string) => {
    wanted.current = id;
    request<Opened>(`api/conversations/${encodeURIComponent(id)}`).then(
      (found) => {
        if (wanted.current !== id) return;
        location.hash = found.id;
        setOpened(found);
        setVisit((count) => count + 1);
        setProblem("");
      },
      (error: Error) => {
        if (error instanceof Unreachable) setProblem(error.message);
        else if (wanted.current === id) begin();
      },
    );
  }, []);
  const reload = useCallback((id: string) => {
    if (wanted.current === id) open(id);
  }, [open]);
  const begin = () => {
    history.replaceState(null, "", location.pathname);
    wanted.current = newId();
    setOpened({ id: wanted.current, messages: [], running: false });
  };
  useEffect(() => {
    request<About>("api/about").then(setAbout, (error: Error) => setProblem(error.message));
    refresh();
    const id = location.hash.slice(1);
    if (id) open(id);
    else begin();
    const follow = () => {
      const asked = location.hash.slice(1);
      if (asked && asked !== wanted.current) open(asked);
    };
    window.addEventListener("focus", refresh);
    window.addEventListener("hashchange", follow);
    return () => {
      window.removeEventListener("focus", refresh);
      window.removeEventListener("hashchange", follow);
    };
  }, [open, refresh]);
  const active = conversations.some((each) => each.running);
  useEffect(() => {
    if (!active) return;
    const timer = setInterval(refresh, REFRESH_MS);
    return () => clearInterval(timer);
  }, [active, refresh]);
  const waiting = conversations.filter((each) => each.waiting);
  useEffect(() => {
    if (about) document.title = waiting.length > 0 ? `(${waiting.length}) ${about.title}` : about.title;
  }, [about, waiting.length]);

  const remove = (id: string) =>
    void request(`api/conversations/${encodeURIComponent(id)}`, { method: "DELETE" }).then(
      () => {
        refresh();
        if (wanted.current === id) begin();
      },
      (error: Error) => setProblem(error.message),
    );
  const changed = () => {
    const here = `#${opened?.id}`;
    if (opened?.id === wanted.current && location.hash !== here) history.replaceState(null, "", here);
    setTimeout(refresh, 100);
  };
  return (
    <div className="page">
      <Conversations
        title={about?.title ?? "corral"}
        user={about?.user}
        conversations={conversations}
        here={opened?.id}
        onNew={begin}
        onOpen={open}
        onDelete={remove}
      />
      <main>
        {problem && (
          <p className="why" role="alert">
            {problem}
          </p>
        )}
        {opened && about && (
          <Chat
            key={`${opened.id} ${visit}`}
            id={opened.id}
            earlier={opened.messages}
            running={opened.running}
            suggestions={about.suggestions}
            waiting={waiting.filter((each) => each.id !== opened.id)}
            onChange={changed}
            onReload={reload}
          />
        )}
      </main>
    </div>
  );
}

function ExecutionPage({ id }: { id: string }) {
  const [execution, setExecution] = useState<Execution>();
  const [problem, setProblem] = useState("");
  const [visit, setVisit] = useState(0);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    const load = () =>
      request<Execution>(`api/executions/${encodeURIComponent(id)}`).then(
        (found) => {
          setExecution(found);
          if (found.status === "running" || found.status === "waiting") timer = setTimeout(load, 500);
          if (found.status === "paused") timer = setTimeout(load, REFRESH_MS);
        },
        (error: Error) => setProblem(error.message),
      );
    void load();
    return () => clearTimeout(timer);
  }, [id, visit]);
  const title = execution?.question ?? "A program";
  const back = execution?.title === title ? "Back to the conversation" : (execution?.title ?? "Conversations");
  useEffect(() => {
    document.title = title;
  }, [title]);
  return (
    <main className="execution">
      <p>
        <a href={execution?.question ? `${root}#${execution.session}` : root}>
          <Icon name="back" /> {back}
        </a>
      </p>
      <h1>{title}</h1>
      {problem && (
        <p className="why" role="alert">
          {problem}
        </p>
      )}
      {execution && (
        <>
          <p className="note">
            {new Date(execution.began * 1000).toLocaleString()} · {id}
          </p>
          <Program execution={execution} alone />
          {execution.recorded && <Timeline execution={execution} onUndone={() => setVisit(visit + 1)} />}
          <div className="composer">
            <Approvals executions={[execution]} />
          </div>
        </>
      )}
    </main>
  );
}

const [, execution] = location.pathname.match(/\/executions\/([^/]+)$/) ?? [];
createRoot(document.getElementById("root")!).render(
  <StrictMode>{execution ? <ExecutionPage id={decodeURIComponent(execution)} /> : <App />}</StrictMode>,
);

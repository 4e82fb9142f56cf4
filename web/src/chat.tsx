import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, type UIMessage } from "ai";
import { type FormEvent, type KeyboardEvent, memo, useEffect, useMemo, useRef, useState } from "react";
import { type Execution, post, root } from "./api";
import { Markdown } from "./markdown";
import { Program } from "./program";

type Message = UIMessage<unknown, { execution: Execution; error: string }>;

interface Props {
  id: string;
  earlier: Message[];
  running: boolean;
  suggestions: string[];
  onChange: () => void;
}

export function Chat({ id, earlier, running, suggestions, onChange }: Props) {
  const transport = useMemo(
    () =>
      new DefaultChatTransport<Message>({
        api: `${root}api/chat`,
        prepareSendMessagesRequest: ({ messages, trigger, messageId }) => ({
          body: { id, messages: messages.slice(-1), trigger, messageId },
        }),
        prepareReconnectToStreamRequest: () => ({ api: `${root}api/chat/${id}/stream` }),
      }),
    [id],
  );
  const { messages, sendMessage, regenerate, status, stop, error, resumeStream } = useChat<Message>({
    id,
    messages: earlier,
    transport,
    experimental_throttle: 50,
    onFinish: onChange,
    onError: onChange,
  });
  const [editing, setEditing] = useState<string>();
  const busy = status === "submitted" || status === "streaming";
  const end = useRef<HTMLDivElement>(null);
  const follows = useRef(true);

  const resumed = useRef(false);
  useEffect(() => {
    if (!running || resumed.current) return;
    resumed.current = true;
    void resumeStream();
  }, [running, resumeStream]);
  useEffect(() => {
    const see = () => {
      follows.current = window.innerHeight + window.scrollY > document.body.scrollHeight - 120;
    };
    window.addEventListener("scroll", see, { passive: true });
    return () => window.removeEventListener("scroll", see);
  }, []);
  useEffect(() => {
    if (follows.current) end.current?.scrollIntoView({ block: "end" });
  }, [messages]);

  const send = (text: string, messageId?: string) => {
    follows.current = true;
    setEditing(undefined);
    void sendMessage({ text, messageId });
    onChange();
  };
  const halt = () => {
    // The server ends the stream once programs have ended, so that their cards say so.
    post<{ stopped: boolean }>(`api/chat/${id}/stop`, {}).then(({ stopped }) => (stopped ? undefined : stop()), stop);
  };
  const last = messages.at(-1);
  return (
    <>
      <div className="messages" aria-live="polite" aria-busy={busy}>
        {messages.length === 0 && (
          <div className="welcome">
            <h2>What shall be done?</h2>
            {suggestions.map((each) => (
              <button type="button" key={each} onClick={() => send(each)}>
                {each}
              </button>
            ))}
          </div>
        )}
        {messages.map((message) =>
          message.role === "user" ? (
            <article className="user" key={message.id} aria-label="You">
              {editing === message.id ? (
                <Composer
                  start={textOf(message)}
                  label="Edited message"
                  onSend={(text) => send(text, message.id)}
                  onCancel={() => setEditing(undefined)}
                />
              ) : (
                <>
                  <p>{textOf(message)}</p>
                  {!busy && (
                    <button type="button" className="quiet" onClick={() => setEditing(message.id)}>
                      Edit
                    </button>
                  )}
                </>
              )}
            </article>
          ) : (
            <article className="assistant" key={message.id} aria-label="Assistant">
              <Parts message={message} />
              {!busy && message === last && (
                <button type="button" className="quiet" onClick={() => void regenerate({ messageId: message.id })}>
                  Retry
                </button>
              )}
            </article>
          ),
        )}
        {status === "submitted" && <p className="note">…</p>}
        {error && (
          <p className="why" role="alert">
            {readable(error.message)}
          </p>
        )}
        <div ref={end} />
      </div>
      <div className="composer">
        <Composer start="" label="Message" onSend={send} busy={busy} onStop={halt} />
      </div>
    </>
  );
}

const textOf = (message: Message) => message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");

function readable(text: string): string {
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return text;
  }
}

/** The parts of a reply. A program's card stands where the model's call of it stands. */
function Parts({ message }: { message: Message }) {
  const executions = new Map<string, Execution>();
  const calls = new Set<string>();
  for (const part of message.parts) {
    if (part.type === "data-execution" && part.data.toolCallId) executions.set(part.data.toolCallId, part.data);
    if ("toolCallId" in part) calls.add(part.toolCallId);
  }
  return message.parts.map((part, index) => {
    if (part.type === "text") return <Markdown key={index} text={part.text} />;
    if (part.type === "reasoning")
      return (
        <details key={index}>
          <summary>Reasoning</summary>
          <Markdown text={part.text} />
        </details>
      );
    if (part.type === "data-error")
      return (
        <p key={index} className="why">
          {part.data}
        </p>
      );
    if (part.type === "data-execution")
      return part.data.toolCallId && calls.has(part.data.toolCallId) ? null : <Program key={index} execution={part.data} />;
    if (!("toolCallId" in part)) return null;
    const execution = executions.get(part.toolCallId);
    if (execution) return <Program key={part.toolCallId} execution={execution} />;
    const input = part.input as { code?: string } | undefined;
    if (part.state === "input-streaming" || part.state === "input-available") {
      return <Program key={part.toolCallId} execution={unwritten(part.toolCallId, input?.code ?? "")} alone />;
    }
    return <OtherTool key={part.toolCallId} part={part} />;
  });
}

const unwritten = (id: string, source: string): Execution => ({
  id,
  toolCallId: id,
  status: "writing",
  language: "typescript",
  source,
  began: 0,
  calls: [],
  callCount: 0,
  logs: [],
  logsDropped: 0,
});

const OtherTool = memo(function OtherTool({ part }: { part: Record<string, any> }) {
  const name = part.toolName ?? String(part.type).replace(/^tool-/, "");
  const answer = part.state === "output-error" ? part.errorText : part.output;
  return (
    <details className="tool">
      <summary>
        {name} {part.state === "output-error" ? "failed" : ""}
      </summary>
      <pre className="value">{JSON.stringify(part.input, null, 2)}</pre>
      <pre className="value">{typeof answer === "string" ? answer : JSON.stringify(answer, null, 2)}</pre>
    </details>
  );
});

interface ComposerProps {
  start: string;
  label: string;
  onSend: (text: string) => void;
  onCancel?: () => void;
  onStop?: () => void;
  busy?: boolean;
}

function Composer({ start, label, onSend, onCancel, onStop, busy }: ComposerProps) {
  const [text, setText] = useState(start);
  const submit = (event?: FormEvent) => {
    event?.preventDefault();
    if (!text.trim() || busy) return;
    onSend(text);
    setText("");
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
      event.preventDefault();
      submit();
    } else if (event.key === "Escape") {
      (onCancel ?? (busy ? onStop : undefined))?.();
    }
  };
  return (
    <form onSubmit={submit}>
      <textarea
        aria-label={label}
        placeholder="Write a message"
        rows={Math.min(8, text.split("\n").length)}
        maxLength={32_000}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={press}
        autoFocus
      />
      {busy ? (
        <button type="button" onClick={onStop}>
          Stop
        </button>
      ) : (
        <button type="submit" className="yes" disabled={!text.trim()}>
          Send
        </button>
      )}
      {onCancel && (
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
      )}
    </form>
  );
}

import { type KeyboardEvent, useState } from "react";
import type { ConversationInfo } from "./api";
import { Icon } from "./icon";

interface Props {
  title: string;
  user?: string;
  conversations: ConversationInfo[];
  here?: string;
  onNew: () => void;
  onOpen: (id: string) => void;
  onDelete: (id: string) => void;
}

const SEARCHED_FROM = 6;

/** The list of conversations. On narrow screens a button opens it. */
export function Conversations({ title, user, conversations, here, onNew, onOpen, onDelete }: Props) {
  const [listed, setListed] = useState(false);
  const [sought, setSought] = useState("");
  const [doubtful, setDoubtful] = useState<string>();
  const found = conversations.filter((each) => each.title.toLowerCase().includes(sought.trim().toLowerCase()));
  const days = new Map<string, ConversationInfo[]>();
  for (const each of found) days.set(dayOf(each.updated), [...(days.get(dayOf(each.updated)) ?? []), each]);
  const leave = (event: KeyboardEvent) => {
    if (event.key === "Escape") setListed(false);
  };
  return (
    <nav className={listed ? "listed" : ""} aria-label="Conversations" onKeyDown={leave}>
      <header>
        <h1>{title}</h1>
        <button type="button" className="menu" aria-expanded={listed} onClick={() => setListed(!listed)}>
          Conversations
        </button>
      </header>
      <button
        type="button"
        onClick={() => {
          setListed(false);
          onNew();
        }}
      >
        <Icon name="plus" /> New conversation
      </button>
      {conversations.length >= SEARCHED_FROM && (
        <input
          type="search"
          aria-label="Search conversations"
          placeholder="Search"
          value={sought}
          onChange={(event) => setSought(event.target.value)}
        />
      )}
      <div className="days">
        {found.length === 0 && <p className="note">{sought ? "No conversation has that in its title" : "No conversations yet"}</p>}
        {[...days].map(([day, members]) => (
          <section key={day}>
            <h2>{day}</h2>
            <ul>
              {members.map((each) => (
                <li key={each.id} className={each.id === here ? "here" : ""}>
                  <button
                    type="button"
                    title={each.title}
                    aria-current={each.id === here ? "page" : undefined}
                    onClick={() => {
                      setListed(false);
                      onOpen(each.id);
                    }}
                  >
                    {(each.running || each.waiting) && (
                      <span
                        className={each.waiting ? "dot waits" : "dot"}
                        role="img"
                        aria-label={!each.running ? "is paused until you decide" : each.waiting ? "waits for your approval" : "in progress"}
                      />
                    )}
                    {each.title}
                  </button>
                  <button
                    type="button"
                    className={doubtful === each.id ? "quiet sure" : "quiet"}
                    aria-label={doubtful === each.id ? `Delete ${each.title} for good` : `Delete ${each.title}`}
                    onBlur={() => setDoubtful(undefined)}
                    onClick={() => {
                      if (doubtful === each.id) onDelete(each.id);
                      setDoubtful(doubtful === each.id ? undefined : each.id);
                    }}
                  >
                    {doubtful === each.id ? "Delete" : <Icon name="close" />}
                  </button>
                </li>
              ))}
            </ul>
          </section>
        ))}
      </div>
      {user && <footer>{user}</footer>}
    </nav>
  );
}

const DAY_SECONDS = 86_400;

function dayOf(seconds: number): string {
  const midnight = new Date().setHours(0, 0, 0, 0) / 1000;
  if (seconds >= midnight) return "Today";
  if (seconds >= midnight - DAY_SECONDS) return "Yesterday";
  return seconds >= midnight - 7 * DAY_SECONDS ? "Last 7 days" : "Earlier";
}

// Kinds of frames. Those below 16 are sent to the guest.

export const Kind = {
  start: 1,
  reply: 2,
  finish: 4,
  chunk: 5,
  ping: 6,
  ready: 16,
  call: 17,
  log: 18,
  exit: 19,
  outcome: 20,
  credit: 21,
  cancel: 22,
  pong: 23,
} as const;

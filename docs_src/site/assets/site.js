// Tables that scroll sideways can be scrolled by keys as well. The theme wraps them after the page has loaded.
function reachable() {
  for (const scroller of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) scroller.tabIndex = 0;
}
new MutationObserver(reachable).observe(document.body, { childList: true, subtree: true });
reachable();

// Links: what they lead to may be folded away, or not be made yet.
function reveal(hash) {
  const id = decodeURIComponent(hash.slice(1));
  if (id.startsWith("run-")) listTrials();
  const target = document.getElementById(id);
  let fold = target && target.closest("details");
  while (fold) {
    fold.open = true;
    fold = fold.parentElement.closest("details");
  }
  return target;
}

function land() {
  const target = location.hash && reveal(location.hash);
  if (target) target.scrollIntoView();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (link && !link.download) reveal(link.hash);
});
addEventListener("hashchange", land);
land();

// The words of what is for sharing, in English and in Korean.

import type { Language } from "../text.ts";

const en = {
  share: "Share",
  close: "Close",
  picture: "Picture of the card in view",
  copyPicture: "Copy picture",
  savePicture: "Save picture",
  film: "Film",
  saveGif: "Save GIF",
  filming: (done: number, all: number) => `Drawing frame ${done} of ${all} …`,
  noFilm: "The training has to stop first: press Pause.",
  gifHint: "Browsers put no GIF on the clipboard, so it is saved as a file.",
  link: "Link to what is in view",
  copyLink: "Copy link",
  embed: "Put it into a page of yours",
  embedHint: "The frame has one picture alone, and a field to type in where the page holds its model.",
  local: "This page is a file on your disk: put it on a web site first, then write its address there in place of the one below.",
  copyEmbed: "Copy HTML",
  snippet: "HTML of the frame",
  copied: "It is on the clipboard.",
  saved: (name: string) => `Saved as ${name}.`,
  savedInstead: (name: string) => `This browser lets the page put no picture on the clipboard; saved as ${name}.`,
  notCopied: "This browser lets the page write nothing to the clipboard: select the text below and copy it.",
  whole: "Open the whole page",
};

type Words = typeof en;

const ko: Words = {
  share: "공유",
  close: "닫기",
  picture: "지금 보이는 카드의 그림",
  copyPicture: "그림 복사",
  savePicture: "그림 저장",
  film: "학습 과정",
  saveGif: "GIF 저장",
  filming: (done, all) => `${all}장면 중 ${done}번째를 그리고 있습니다 …`,
  noFilm: "먼저 학습을 멈춰 주십시오. 일시 정지를 누르면 됩니다.",
  gifHint: "브라우저는 GIF를 클립보드에 넣지 않으므로 파일로 저장합니다.",
  link: "지금 화면의 링크",
  copyLink: "링크 복사",
  embed: "내 페이지에 넣기",
  embedHint: "프레임에는 그림 하나만 들어가고, 모델이 들어 있는 페이지라면 입력 칸도 함께 보입니다.",
  local: "이 페이지는 디스크에 있는 파일입니다. 먼저 웹 사이트에 올린 다음 아래 주소를 그 주소로 바꾸십시오.",
  copyEmbed: "HTML 복사",
  snippet: "프레임의 HTML",
  copied: "클립보드에 넣었습니다.",
  saved: (name) => `${name}(으)로 저장했습니다.`,
  savedInstead: (name) => `이 브라우저에서는 페이지가 그림을 클립보드에 넣을 수 없어 ${name}(으)로 저장했습니다.`,
  notCopied: "이 브라우저에서는 페이지가 클립보드에 쓸 수 없습니다. 아래 텍스트를 선택해 복사하십시오.",
  whole: "전체 페이지 열기",
};

export const TEXTS: { [language in Language]: Words } = { en, ko };

"""What somebody may look for in Google's APIs, and the tools that do it. Written before the search was tried on them."""

from __future__ import annotations

__all__ = ["QUERIES"]

QUERIES = {
    "send an email": {"gmail.users_messages_send"},
    "unread messages in the inbox": {"gmail.users_messages_list"},
    "set an out of office reply": {"gmail.users_settings_updateVacation"},
    "move a mail to the bin": {"gmail.users_messages_trash", "gmail.users_threads_trash"},
    "create a calendar event": {"calendar.events_insert", "calendar.events_quickAdd"},
    "when are people busy": {"calendar.freebusy_query"},
    "instances of a recurring event": {"calendar.events_instances"},
    "upload a file": {"drive.files_create"},
    "share a document with someone": {"drive.permissions_create"},
    "download the content of a file": {"drive.files_download", "drive.files_get"},
    "read cells of a spreadsheet": {
        "sheets.spreadsheets_values_get",
        "sheets.spreadsheets_values_batchGet",
        "sheets.spreadsheets_get",
    },
    "append rows to a sheet": {"sheets.spreadsheets_values_append"},
    "add a todo": {"tasks.tasks_insert"},
    "translate text": {"translate.projects_translateText", "translate.projects_locations_translateText"},
    "detect the language of a text": {
        "translate.projects_detectLanguage",
        "translate.projects_locations_detectLanguage",
    },
    "find a person in my contacts": {"people.people_searchContacts"},
    "recognize speech in an audio file": {"speech.speech_recognize", "speech.speech_longrunningrecognize"},
    "find the objects in a picture": {"vision.images_annotate", "vision.files_annotate"},
    "sentiment of a review": {"language.documents_analyzeSentiment"},
    "remove a DNS record": {"dns.resourceRecordSets_delete"},
    "read the value of a secret": {
        "secretmanager.projects_secrets_versions_access",
        "secretmanager.projects_locations_secrets_versions_access",
    },
    "publish a message to a topic": {"pubsub.projects_topics_publish"},
    "run a SQL query": {"bigquery.jobs_query"},
    "page speed of a website": {"pagespeedonline.pagespeedapi_runpagespeed"},
    "convert a price to other countries": {"androidpublisher.monetization_convertRegionPrices"},
    "restore a database from a backup": {"sqladmin.instances_restoreBackup"},
    "invite a student's guardian": {"classroom.userProfiles_guardianInvitations_create"},
    "reply to a review": {"androidpublisher.reviews_reply"},
    "most popular videos": {"youtube.videos_list"},
    "bookshelves of a user": {"books.bookshelves_list"},
}
